// Markdown as elements, from the tokens of a lexer that is loaded with the first message. HTML is shown as source text, pictures become links, and only web
// and mail addresses become links.

import { plain } from "./text.js";
import { html, signal, useEffect, useRef } from "./html.js";

const LONGEST = 65536; // longer text stays plain
const DEEPEST = 12; // deeper nesting stays plain

/** @typedef {any} Token its members differ by its type */

const lexer = signal(/** @type {typeof import("../vendor/marked.js").Lexer | null} */ (null));
let asked = false;

function load() {
  if (asked) return;
  asked = true;
  import("../vendor/marked.js").then((m) => { lexer.value = m.Lexer; }, () => { asked = false; });
}

// Prose shows plain text until the lexer is loaded.
/** @param {{text: string}} props */
export function Prose({ text }) {
  useEffect(load, []);
  const known = useRef(/** @type {{text?: string, lexer?: unknown, shown?: any}} */ ({}));
  if (known.current.text !== text || known.current.lexer !== lexer.value) known.current = { text, lexer: lexer.value, shown: shown(plain(text), lexer.value) };
  return known.current.shown;
}

/** @param {string} text @param {typeof import("../vendor/marked.js").Lexer | null} Lexer */
function shown(text, Lexer) {
  if (!Lexer || text.length > LONGEST) return text;
  try { return blocks(new Lexer({ gfm: true, breaks: true }).lex(text), 0); } catch { return text; }
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
  if (depth > DEEPEST) return html`<p>${t.raw}</p>`;
  switch (t.type) {
    case "space": case "def": return null;
    case "heading": return html`<p class="heading">${inline(t.tokens, depth)}</p>`;
    case "paragraph": return html`<p>${inline(t.tokens, depth)}</p>`;
    case "code": return html`<pre tabindex="0"><code>${t.text}</code></pre>`;
    case "blockquote": return html`<blockquote>${blocks(t.tokens, depth)}</blockquote>`;
    case "hr": return html`<hr/>`;
    case "list": return list(t, depth);
    case "table": return html`<div class="sheet" tabindex="0" role="group" aria-label="Table"><table><thead><tr>${t.header.map((/** @type {Token} */ c) => html`<th scope="col">${inline(c.tokens, depth)}</th>`)}</tr></thead>
      <tbody>${t.rows.map((/** @type {Token[]} */ r) => html`<tr>${r.map((c) => html`<td>${inline(c.tokens, depth)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "text": return t.tokens ? html`<span>${inline(t.tokens, depth)}</span>` : words(t.text);
    case "checkbox": return t.checked ? "☑ " : "☐ ";
    default: return html`<p>${t.raw.trimEnd()}</p>`;
  }
}

/** @param {Token} t @param {number} depth */
function list(t, depth) {
  const items = t.items.map((/** @type {Token} */ i) => html`<li>${blocks(i.tokens, depth)}</li>`);
  return t.ordered ? html`<ol start=${t.start}>${items}</ol>` : html`<ul>${items}</ul>`;
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
  const named = /[\w-]+(?:\.[\w-]+)+/.exec(words(t.text))?.[0];
  return html`<a href=${to.href} title=${plain(to.href)} rel="noopener noreferrer nofollow" target="_blank">${content}</a>${named && named.toLowerCase().replace(/^www\./, "") !== host.replace(/^www\./, "") && ` (${plain(host)})`}`;
}
