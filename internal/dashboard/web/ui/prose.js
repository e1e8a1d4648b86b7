// Markdown as elements: code blocks, headings, lists, quotations, bold, italic and code. Everything is text; only addresses of the web become links.

import { html } from "./html.js";
import { plain } from "./text.js";

export function prose(text) {
  return plain(text).split("```").map((part, i) => {
    if (i % 2 === 0) return part ? blocks(part.replace(/^\n|\n$/g, "")) : null;
    const [, , code] = /^([\w+-]*\n)?([\s\S]*)$/.exec(part);
    return html`<pre tabindex="0"><code>${code.replace(/\n$/, "")}</code></pre>`;
  });
}

const LINES = [
  [/^#{1,6} +(.*)$/, "strong"], [/^ *[-*+] +(.*)$/, "ul"], [/^ *\d{1,9}[.)] +(.*)$/, "ol"], [/^> ?(.*)$/, "blockquote"],
];

// blocks groups lines of one kind.
function blocks(text) {
  const out = [];
  let kind = "", group = [];
  const close = () => {
    if (kind === "ul" || kind === "ol") out.push(html`<${kind}>${group.map((l) => html`<li>${inline(l)}</li>`)}</${kind}>`);
    else if (kind === "strong") out.push(...group.map((l) => html`<strong class="heading">${inline(l)}</strong>`));
    else if (kind) out.push(html`<${kind}>${inline(group.join("\n"))}</${kind}>`);
    group = [];
  };
  for (const line of text.split("\n")) {
    const [match, tag] = LINES.map(([pattern, t]) => [pattern.exec(line), t]).find(([m]) => m) ?? [null, "span"];
    if (tag !== kind) { close(); kind = tag; }
    group.push(match ? match[1] : line);
  }
  close();
  return out;
}

const MARKS = /`([^`\n]+)`|\*\*(?=\S)([^*\n]+?)(?<=\S)\*\*|(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])|\[([^\]\n]{1,300})\]\((https?:\/\/[^\s()]{1,2000})\)/g;

function inline(text) {
  const out = [];
  let from = 0;
  for (const m of text.matchAll(MARKS)) {
    out.push(text.slice(from, m.index));
    if (m[1]) out.push(html`<code>${m[1]}</code>`);
    else if (m[2]) out.push(html`<strong>${m[2]}</strong>`);
    else if (m[3]) out.push(html`<em>${m[3]}</em>`);
    else out.push(html`<a href=${m[5]} title=${m[5]} rel="noopener noreferrer nofollow" target="_blank">${m[4]}</a>`);
    from = m.index + m[0].length;
  }
  return [...out, text.slice(from)];
}
