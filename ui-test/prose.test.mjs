// How the page reads Markdown, without a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as marked from "../internal/dashboard/web/vendor/marked.js";
import { nearIdeographs } from "../internal/dashboard/web/ui/prose.js";
import { plain } from "../internal/dashboard/web/ui/text.js";

const cases = JSON.parse(readFileSync(new URL("../internal/channel/telegram/testdata/marks.json", import.meta.url), "utf8"));
const Lexer = nearIdeographs(marked);
const TAGS = { strong: "b", em: "i", del: "s" };

const shown = (tokens) => tokens.map((t) => {
  const inner = t.tokens ? shown(t.tokens) : t.text ?? t.raw;
  return TAGS[t.type] ? `<${TAGS[t.type]}>${inner}</${TAGS[t.type]}>` : inner;
}).join("");
const read = (L, text) => new L({ gfm: true, breaks: true }).lex(text);
// sorted puts tags that begin together into one order: the nesting of bold and italic has no meaning.
const sorted = (text) => text.replace(/<i><b>([^<]*)<\/b><\/i>/g, "<b><i>$1</i></b>");

test("marks next to ideographs are read as in Telegram and in the terminal", () => {
  assert.ok(cases.length >= 20);
  for (const c of cases) assert.equal(sorted(shown(read(Lexer, c.markdown))), c.shown, c.markdown);
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
