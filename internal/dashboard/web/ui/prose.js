// Markdown as elements, from the tokens of a lexer that is loaded with the first message. HTML is shown as source text, pictures become links, and only web
// and mail addresses become links.

import { plain } from "./text.js";
import { html, signal, useEffect, useRef, useState } from "./html.js";

const LONGEST = 65536; // longer text stays plain
const DEEPEST = 12; // deeper nesting stays plain

// The time of the lexer grows with the square of some inputs, and its authors are models and other people. So a piece has at most PIECE characters, the pieces of all
// messages together take FRAME milliseconds of a frame, and a piece that alone takes longer than SLOW stays plain after TRIES, because a busy machine is slow as well.
const PIECE = 4096, FRAME = 20, SLOW = 40, TRIES = 3, PAUSE = 16;

/** @typedef {any} Token its members differ by its type */

const lexer = signal(/** @type {typeof import("../vendor/marked.js").Lexer | null} */ (null));
let asked = false;

function load() {
  if (asked) return;
  asked = true;
  import("../vendor/marked.js").then((m) => { lexer.value = nearIdeographs(m); }, () => { asked = false; });
}

// CommonMark decides by white space and punctuation whether a mark opens or closes, and Chinese, Japanese and Korean put no spaces between words. Here their punctuation
// counts as letters, and a mark between other punctuation and one of their letters both opens and closes. Text without them is read as before; Telegram and the terminal
// have the same rule.
const WIDE = String.raw`[\u1100-\u11ff\u2e80-\u2fff\u3001-\u4dbf\u4e00-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uffee\u{16fe0}-\u{18dff}\u{1aff0}-\u{1b2ff}\u{1f200}-\u{1f2ff}\u{20000}-\u{3ffff}\u{e0100}-\u{e01ef}]`;

// closers are the places of a run of marks: two groups that can only close, two that can only open, two that can do both, in the order that marked expects.
/** @param {string} mark @param {string} first @param {string} orphan @param {string} letter characters that count as letters */
function closers(mark, first, orphan, letter) {
  const point = `(?!${first}|${WIDE}${letter && `|${letter}`})[\\p{P}\\p{S}]`, narrow = `(?:(?!${WIDE})[^\\s\\p{P}\\p{S}]${letter && `|${letter}`})`, word = `(?:${narrow}|${WIDE})`;
  const at = (/** @type {string} */ before, /** @type {string} */ after) => `${before}(?=${mark}(?!${first})(?:${after}))`;
  const run = (/** @type {string[]} */ ...places) => `(?:${places.join("|")})(${mark})`;
  return new RegExp([
    `${orphan}[^${first}]+(?=[^${first}])`, run(at(point, "\\s|$")), run(at(narrow, `\\s|${point}|$`), at(WIDE, "\\s|$")), run(at("\\s", word), at(point, narrow)), run(at("\\s", point)),
    run(at(point, `${point}|${WIDE}`)), run(at(narrow, word), at(WIDE, `${word}|${point}`)),
  ].join("|"), "gu");
}

/** @param {Pick<typeof import("../vendor/marked.js"), "Lexer" | "Tokenizer">} marked */
export function nearIdeographs({ Lexer, Tokenizer }) {
  const wide = new RegExp(`${WIDE}$`, "u"), points = (/** @type {RegExp} */ rule) => new RegExp(rule.source.replaceAll("[\\p{P}\\p{S}]", `(?!${WIDE})[\\p{P}\\p{S}]`), rule.flags);
  const own = { emStrongRDelimAst: closers("\\*+", "\\*", "^[^_*]*?__[^_*]*?\\*[^_*]*?(?=__)|", "~"), delRDelim: closers("~~?", "~", "", "") };
  // before gives the rule for the beginning of a mark a point in place of a wide character: after both, a mark can open before a point.
  const before = (/** @type {string} */ src, /** @type {string} */ masked, /** @type {string} */ prev) => (src[0] !== "_" && wide.test(masked.slice(0, masked.length - src.length)) ? "(" : prev);
  let until = Infinity, depth = 0;
  const check = () => { if (performance.now() > until) throw new Slow(); };
  class Marks extends Tokenizer {
    // These two are the first rules of each block and of each part of a line.
    /** @param {string} src */
    space(src) { check(); return super.space(src); }
    /** @param {string} src */
    escape(src) { check(); return super.escape(src); }
    /** @param {string} src @param {string} masked @param {string} [prev] */
    emStrong(src, masked, prev = "") { return super.emStrong(src, masked, before(src, masked, prev)); }
    /** @param {string} src @param {string} masked @param {string} [prev] */
    del(src, masked, prev = "") { return super.del(src, masked, before(src, masked, prev)); }
  }
  class Pieces extends /** @type {new (options: any) => any} */ (Lexer) {
    /** @param {any} options */
    constructor(options) {
      super({ ...options, tokenizer: new Marks() });
      until = options.until ?? Infinity;
      depth = 0;
      const rules = /** @type {any} */ (this).tokenizer.rules, { emStrongLDelim, delLDelim } = rules.inline;
      /** @type {any} */ (this).tokenizer.rules = { ...rules, inline: { ...rules.inline, ...own, emStrongLDelim: points(emStrongLDelim), delLDelim: points(delLDelim) } };
    }
    // Quotations and lists call it for their content.
    /** @param {string} src @param {any[]} [tokens] @param {boolean} [lastParagraphClipped] */
    blockTokens(src, tokens = [], lastParagraphClipped) {
      if (depth > DEEPEST) return tokens.push({ type: "text", raw: src, text: src }), tokens;
      depth++;
      try { return super.blockTokens(src, tokens, lastParagraphClipped); } finally { depth--; }
    }
  }
  return /** @type {typeof Lexer} */ (/** @type {unknown} */ (Pieces));
}

class Slow extends Error {}

// pieces divides a text where a block ends: at blank lines outside of fenced code, and not before a line that may continue a list.
/** @param {string} text @returns {string[]} */
export function pieces(text) {
  if (text.length <= PIECE) return [text];
  /** @type {string[]} */
  const out = [];
  let from = 0, cut = 0, at = 0, fence = "", blank = false;
  while (at < text.length) {
    const end = text.indexOf("\n", at) + 1 || text.length, line = text.slice(at, end);
    if (!fence && blank && !/^(?:\s|[-*+] |\d{1,9}[.)] )/.test(line)) {
      if (at - from > PIECE && cut > from) { out.push(text.slice(from, cut)); from = cut; }
      cut = at;
    }
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (mark && !fence) fence = mark;
    else if (mark && mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark) fence = "";
    blank = line.trim() === "";
    at = end;
  }
  if (at - from > PIECE && cut > from) { out.push(text.slice(from, cut)); from = cut; }
  out.push(text.slice(from));
  return out;
}

let left = FRAME, timer = 0;
/** @type {(() => void)[]} the messages with pieces that wait for the next frame */
let waiting = [];

// later calls a message again in the next frame.
/** @param {() => void} again */
function later(again) {
  if (!waiting.includes(again)) waiting.push(again);
  if (!timer) timer = window.setTimeout(frame, PAUSE);
}

function frame() {
  const now = waiting;
  waiting = [];
  left = FRAME;
  timer = 0;
  for (const again of now) again();
}

/** @typedef {{text: string, tries: number, shown: any}} Piece shown is undefined until the piece was read */

// read reads a piece as long as the frame has time; its error means that the piece stays plain.
/** @param {Piece} piece @param {typeof import("../vendor/marked.js").Lexer} Lexer @param {any} links the definitions of the whole text */
export function read(piece, Lexer, links) {
  if (piece.text.length > PIECE) { piece.shown = long(piece.text); return; }
  const began = performance.now();
  try {
    const lexer = new Lexer(/** @type {any} */ ({ gfm: true, breaks: true, until: began + SLOW }));
    Object.assign(lexer.tokens.links, links);
    piece.shown = blocks(lexer.lex(piece.text), 0);
  } catch (e) {
    if (!(e instanceof Slow) || ++piece.tries >= TRIES) piece.shown = piece.text;
  }
  left -= performance.now() - began;
  if (!timer) timer = window.setTimeout(frame, PAUSE);
}

// long shows a block that is too long for the lexer: fenced code as code, anything else as it was written.
/** @param {string} text */
function long(text) {
  const first = text.indexOf("\n"), end = text.trimEnd(), last = end.lastIndexOf("\n");
  const open = /^ {0,3}(```|~~~)/.exec(text)?.[1], closed = open && end.slice(last + 1).trim().startsWith(open);
  if (!open || first < 0 || text.slice(3, first).includes("`")) return text;
  return html`<pre dir="auto" tabindex="0"><code>${text.slice(first + 1, closed && last > first ? last : undefined)}</code></pre>`;
}

// definitions are the addresses of links that a text defines in lines such as [name]: address.
/** @param {string} text @param {typeof import("../vendor/marked.js").Lexer} Lexer */
function definitions(text, Lexer) {
  const lines = text.match(/^ {0,3}\[[^\]\n]{1,200}\]:[^\n]{1,2000}$/gm) ?? [];
  const lexer = new Lexer(/** @type {any} */ ({ gfm: true, until: performance.now() + FRAME }));
  try { lexer.lex(lines.join("\n").slice(0, PIECE)); } catch { return {}; }
  return lexer.tokens.links;
}

// Prose shows plain text until the lexer is loaded, and each piece of a long text as plain text until its turn. A piece that a change of the text leaves as it was is
// not read again.
/** @param {{text: string}} props */
export function Prose({ text }) {
  const [, redraw] = useState(0);
  const known = useRef(/** @type {{text?: string, lexer?: unknown, links?: any, again: () => void, pieces: Piece[]}} */ ({ again: () => redraw((n) => n + 1), pieces: [] }));
  useEffect(load, []);
  useEffect(() => () => { waiting = waiting.filter((again) => again !== known.current.again); }, []);
  const Lexer = lexer.value, now = known.current;
  if (now.text !== text || now.lexer !== Lexer) {
    const whole = plain(text.replace(/\r\n?/g, "\n"));
    if (!Lexer || whole.length > LONGEST) now.pieces = [{ text: whole, tries: TRIES, shown: whole }];
    else {
      const parts = pieces(whole), links = parts.length > 1 ? definitions(whole, Lexer) : {};
      const same = now.lexer === Lexer && JSON.stringify(links) === JSON.stringify(now.links) ? now.pieces : [];
      now.pieces = parts.map((part, i) => (same[i]?.text === part ? same[i] : { text: part, tries: 0, shown: undefined }));
      now.links = links;
    }
    Object.assign(now, { text, lexer: Lexer });
  }
  for (const piece of now.pieces) {
    if (piece.shown !== undefined) continue;
    if (Lexer && left > 0) read(piece, Lexer, now.links);
    if (piece.shown === undefined) later(now.again);
  }
  return now.pieces.map((piece) => piece.shown ?? piece.text);
}

/** @type {Record<string, string>} */
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " " };
const entity = (/** @type {string} */ whole, /** @type {string} */ name) => {
  if (!name.startsWith("#")) return ENTITIES[name] ?? whole;
  const code = name[1].toLowerCase() === "x" ? parseInt(name.slice(2), 16) : Number(name.slice(1));
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
};
const words = (/** @type {string} */ text) => plain(text.replace(/&(#x[0-9a-f]{1,6}|#[0-9]{1,7}|[a-z]+);/gi, entity));

/** @param {Token[]} tokens @param {number} depth @returns {any[]} */
const blocks = (tokens, depth) => tokens.map((t) => block(t, depth + 1));

/** @param {Token} t @param {number} depth */
function block(t, depth) {
  if (depth > DEEPEST) return html`<p dir="auto">${t.raw}</p>`;
  switch (t.type) {
    case "space": case "def": return null;
    case "heading": return html`<p dir="auto" class="heading">${inline(t.tokens, depth)}</p>`;
    case "paragraph": return html`<p dir="auto">${inline(t.tokens, depth)}</p>`;
    case "code": return html`<pre dir="auto" tabindex="0"><code>${t.text}</code></pre>`;
    case "blockquote": return html`<blockquote dir="auto">${blocks(t.tokens, depth)}</blockquote>`;
    case "hr": return html`<hr/>`;
    case "list": return list(t, depth);
    case "table": return html`<div class="sheet" tabindex="0" role="group" aria-label="Table"><table dir="auto"><thead><tr>${t.header.map((/** @type {Token} */ c) => html`<th dir="auto" scope="col">${inline(c.tokens, depth)}</th>`)}</tr></thead>
      <tbody>${t.rows.map((/** @type {Token[]} */ r) => html`<tr>${r.map((c) => html`<td dir="auto">${inline(c.tokens, depth)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "text": return t.tokens ? html`<span dir="auto">${inline(t.tokens, depth)}</span>` : words(t.text);
    case "checkbox": return t.checked ? "☑ " : "☐ ";
    default: return html`<p dir="auto">${t.raw.trimEnd()}</p>`;
  }
}

/** @param {Token} t @param {number} depth */
function list(t, depth) {
  const items = t.items.map((/** @type {Token} */ i) => html`<li dir="auto">${blocks(i.tokens, depth)}</li>`);
  return t.ordered ? html`<ol dir="auto" start=${t.start}>${items}</ol>` : html`<ul dir="auto">${items}</ul>`;
}

/** @param {Token[] | undefined} tokens @param {number} depth @returns {any[]} */
const inline = (tokens, depth) => (tokens ?? []).map((t) => part(t, depth + 1));

/** @param {Token} t @param {number} depth */
function part(t, depth) {
  if (depth > DEEPEST) return t.raw;
  switch (t.type) {
    case "strong": return html`<strong>${inline(t.tokens, depth)}</strong>`;
    case "em": return html`<em>${inline(t.tokens, depth)}</em>`;
    case "del": return html`<del>${inline(t.tokens, depth)}</del>`;
    case "codespan": return html`<code>${t.text}</code>`;
    case "br": return html`<br/>`;
    case "link": return link(t, inline(t.tokens, depth));
    case "image": return link(t, `[picture: ${words(t.text) || "without a name"}]`);
    case "text": return t.tokens ? inline(t.tokens, depth) : words(t.text);
    case "escape": return words(t.text);
    default: return t.raw;
  }
}

// A link whose text names another host also shows its real host.
/** @param {Token} t @param {any} content */
function link(t, content) {
  let to;
  try { to = new URL(t.href); } catch { return t.raw; }
  if (!["http:", "https:", "mailto:"].includes(to.protocol)) return t.raw;
  const host = to.protocol === "mailto:" ? to.pathname.replace(/^.*@/, "") : to.hostname;
  return html`<a href=${to.href} title=${plain(to.href)} rel="noopener noreferrer nofollow" target="_blank">${content}</a>${misnames(seen(t.tokens) || words(t.text), host) && ` (${plain(host)})`}`;
}

// seen is the text that a reader sees of tokens, without their marks.
/** @param {Token[] | undefined} tokens @returns {string} */
const seen = (tokens) => (tokens ?? []).map((t) => (t.tokens ? seen(t.tokens) : words(t.text ?? t.raw))).join("");

// misnames reports whether a text names a host that is not the given one. Characters that cannot be seen do not count, and characters that look like a dot are one.
/** @param {string} text @param {string} host */
export function misnames(text, host) {
  let visible = text;
  try { visible = decodeURIComponent(text); } catch { /* not every % begins an escape */ }
  visible = visible.normalize("NFKC").replace(/[\p{Cf}\u034f\ufe00-\ufe0f\u115f\u1160\u2800\u3164\uffa0]/gu, "").replace(/[\u3002\u0701\u0702\ua4f8]/g, ".");
  const named = /** @type {string[]} */ (visible.match(/[\p{L}\p{N}\p{M}_-]+(?:\.[\p{L}\p{N}\p{M}_-]+)+/gu) ?? []);
  for (const [, at] of visible.matchAll(/[a-z][a-z\d+.-]*:[\\/]{2,}([^\s\\/?#]+)/gi)) named.push(at.replace(/^.*@/, "").replace(/:\d*$/, ""));
  return named.some((name) => canonical(name) !== canonical(host));
}

// canonical is a host as browsers address it; "?" stands for what cannot be one.
/** @param {string} host */
function canonical(host) {
  try { return new URL(`https://${host}`).hostname.replace(/^www\./, "").replace(/\.$/, ""); } catch { return "?"; }
}
