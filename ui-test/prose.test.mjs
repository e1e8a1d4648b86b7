// How the page reads Markdown, without a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as marked from "../internal/dashboard/web/vendor/marked.js";
import { misnames, nearIdeographs, pieces, read as readPiece } from "../internal/dashboard/web/ui/prose.js";
import { plain } from "../internal/dashboard/web/ui/text.js";

const cases = JSON.parse(readFileSync(new URL("../internal/channel/telegram/testdata/marks.json", import.meta.url), "utf8"));
const Lexer = nearIdeographs(marked);
const TAGS = { strong: "b", em: "i", del: "s", codespan: "code" };

const shown = (tokens) => tokens.map((t) => {
  const inner = t.tokens ? shown(t.tokens) : t.text ?? t.raw;
  return TAGS[t.type] ? `<${TAGS[t.type]}>${inner}</${TAGS[t.type]}>` : inner;
}).join("");
const read = (L, text) => new L({ gfm: true, breaks: true }).lex(text);
// styled gives each character with its styles: their order has no meaning, and Telegram shows code in no other style.
const styled = (text) => {
  const has = new Set(), out = [];
  for (const [whole, end, tag] of text.matchAll(/<(\/?)(b|i|s|code)>|[^]/gu)) {
    if (!tag) out.push(whole + (has.has("code") ? "code" : [...has].sort().join("")));
    else if (end) has.delete(tag);
    else has.add(tag);
  }
  return out;
};

test("marks next to ideographs are read as in Telegram and in the terminal", () => {
  assert.ok(cases.length >= 20);
  for (const c of cases) assert.deepEqual(styled(shown(read(Lexer, c.markdown))), styled(c.shown), c.markdown);
});

test("marks without ideographs are read as marked alone reads them", () => {
  const pieces = ["**", "*", "~~", "~", "_", "__", "a", "b c", " ", ".", "(", ")", '"', "é", "`x`", "[l](https://example.org)", "\n", "😀", "***", "-"];
  let seed = 7;
  const next = (n) => { seed = (seed * 48271) % 2147483647; return seed % n; };
  for (let i = 0; i < 20000; i++) {
    const text = Array.from({ length: 1 + next(14) }, () => pieces[next(pieces.length)]).join("");
    assert.deepEqual(read(Lexer, text), read(marked.Lexer, text), JSON.stringify(text));
  }
});

test("words stay as they were written", () => {
  for (const text of ["می\u200cخواهم", "👨\u200d👩\u200d👧", "ภาษา\u200bไทย", "Schiff\u00adfahrt"]) assert.equal(plain(text), text);
  assert.equal(plain("a\u202eb\u2066c\u200f"), "a\\u202eb\\u2066c\\u200f");
});

test("no hostile text holds the page", () => {
  globalThis.window ??= { setTimeout: () => 1 };
  const units = [
    "[", "]", "[a](", "![", "[[]", "](", "[a][", "[a]: b\n", "[a](<", "*", "_", "**a ", "_a ", "*a_ ", "a*b_", "***a", "*字**", "~", "~~a ", "`", "a``", "``` \n", "~~~\n", "<", "<a ", "<!--", "<b>",
    "&", "|", "|a|b|\n", "|-|-|\n", "| a\n|-\n", "> ", ">", "- ", "1. ", "- a\n ", "* a\n  * ", "http://a.", "www.", "a@b.", "\\", "\t", "#", "a\n", "---\n", "a\n\n", "- a\n\n", "[a](b '",
  ];
  for (const unit of units) {
    const text = unit.repeat(65536 / unit.length);
    let began = performance.now(), divided = Infinity, parts;
    for (let i = 0; i < 3; i++) {
      began = performance.now();
      parts = pieces(text);
      divided = Math.min(divided, performance.now() - began);
    }
    assert.equal(parts.join(""), text, unit);
    const slow = [];
    for (const part of parts.slice(0, 4)) {
      const piece = { text: part, tries: 2, shown: undefined };
      began = performance.now();
      readPiece(piece, Lexer, {});
      slow.push(performance.now() - began);
      assert.notEqual(piece.shown, undefined, unit);
    }
    // The smallest of the times, because a busy machine adds to each.
    assert.ok(Math.min(...slow) < 100 && divided < 100, `${JSON.stringify(unit)}: divided in ${divided} ms, read in ${slow} ms`);
  }
});

test("a long text is divided between its blocks", () => {
  const fence = `\`\`\`\n${"code\n\n".repeat(500)}\`\`\`\n\n`, list = Array.from({ length: 300 }, (_, i) => `${i + 1}. item\n\n`).join("");
  const text = `${"Words of a paragraph.\n\n".repeat(300)}${fence}${list}# End\n`;
  const parts = pieces(text);
  assert.equal(parts.join(""), text);
  assert.ok(parts.length > 3 && parts.some((p) => p.includes(fence)), `${parts.length} parts`);
  assert.ok(parts.filter((p) => p.includes("item")).length === 1, "a list is divided");
});

test("a text that names another host is found in every form", () => {
  for (const text of [
    "bank.example", "https://bank.example", "BANK.EXAMPLE", "www.bank.example", "bank.example.", "bank.example:443", "https://bank.example/a?b", "bank\u200b.example", "ba\u00adnk.exa\u2060mple",
    "bank\uff0eexample", "bank\u3002example", "bank\uff61example", "bank\u2024example", "bank%2eexample", "https%3A%2F%2Fbank.example", "https://evil.example@bank.example", "https://bank.example@evil.example",
    "evil.example and bank.example", "bücher.example", "b\u0430nk.example", "evil.example.bank.example", "https://intranet", "https:\\\\bank", "mail@bank.example", "ｂａｎｋ.example", "evi\u04cf.example", "http://2130706433",
  ]) assert.ok(misnames(text, "evil.example"), text);
  for (const [text, host] of [
    ["evil.example", "evil.example"], ["EVIL.example", "www.evil.example"], ["www.evil.example", "evil.example."], ["https://evil.example:8080/a", "evil.example"], ["read this", "evil.example"],
    ["100 % sure", "evil.example"], ["bücher.example", "xn--bcher-kva.example"], ["anna@evil.example", "evil.example"], ["http://2130706433", "127.0.0.1"], ["http://[::1]:80/", "[::1]"],
  ]) assert.ok(!misnames(text, host), text);
});
