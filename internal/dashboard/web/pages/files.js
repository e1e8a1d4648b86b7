// Files of messages: chosen or pasted, uploaded before the message that names them, and shown with it. The content comes over HTTP with the token of this tab
// and is shown as a Blob.

import { http } from "../store.js";
import { html, useEffect, useRef, useSignal } from "../ui/html.js";
import { plain, size } from "../ui/text.js";

const MOST = 16; // of one message
const LARGEST = 20 * 1024 * 1024;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST_PICTURE = 5 * 1024 * 1024; // that is shown without a click

// choose adds files to the chosen ones; refused is called with the reason why a file is not accepted.
/** @param {page.Signal<File[]>} chosen @param {Iterable<File>} files @param {(why: string) => void} refused */
export function choose(chosen, files, refused) {
  for (const f of files) {
    if (f.size > LARGEST) refused(`${f.name} is larger than ${size(LARGEST)}.`);
    else if (chosen.value.length === MOST) refused(`A message takes ${MOST} files.`);
    else chosen.value = [...chosen.value, f];
  }
}

/** @param {{chosen: page.Signal<File[]>}} props */
export function Chips({ chosen }) {
  if (chosen.value.length === 0) return null;
  return html`<div class="chips">${chosen.value.map((f, i) => html`<span class="chip" key=${`${f.name}-${i}`}><span class="ellipsis">${plain(f.name)}</span> <span class="quiet">${size(f.size)}</span>
    <button type="button" aria-label=${`Remove ${plain(f.name)}`} onClick=${() => { chosen.value = chosen.value.filter((o) => o !== f); }}>×</button></span>`)}</div>`;
}

// upload sends files one after the other and returns their references for the message.
/** @param {page.Http} send @param {File[]} files @returns {Promise<{fileId: string}[]>} */
export async function upload(send, files) {
  const sent = [];
  for (const f of files) {
    const form = new FormData();
    form.append("purpose", "user_data");
    form.append("file", f, f.name);
    sent.push({ fileId: (await (await send("v1/files", { method: "POST", body: form })).json()).id });
  }
  return sent;
}

/** @typedef {() => Promise<Blob>} Content */

/** @param {{message: page.Message}} props */
export function Files({ message }) {
  /** @type {[file: Pick<wire.MessageFile, "name" | "mimeType" | "size">, content: Content][]} */ const files = message.chosen ? message.chosen.map((f) => [{ name: f.name, mimeType: f.type, size: f.size }, () => Promise.resolve(f)])
    : (message.files ?? (message.role === "assistant" && !message.growing ? made(message.text.value).files : [])).map((f) => [f, async () => (await http(f.url)).blob()]);
  return files.length > 0 && html`<div class="files">${files.map(([f, content], i) => html`<${Attached} key=${i} file=${f} content=${content}/>`)}</div>`;
}

// made separates the text of an answer from the lines of its files. A line names a kept file by its id; the gateway decides who may read it.
/** @param {string} text @returns {{text: string, files: wire.MessageFile[]}} */
export function made(text) {
  const lines = text.split("\n"), files = [];
  for (let m; (m = /^\[file: (.*), ([^ ,]+\/[^ ,]+), (\d+) bytes, (file-[0-9a-f]+)\]$/.exec(lines.at(-1) ?? "")); lines.pop()) {
    files.unshift({ name: m[1], mimeType: m[2], size: Number(m[3]), url: `v1/files/${m[4]}/content` });
  }
  return { text: files.length > 0 ? lines.join("\n").trimEnd() : text, files };
}

/** @param {{file: Pick<wire.MessageFile, "name" | "mimeType" | "size">, content: Content}} props */
function Attached({ file, content }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)), picture = useSignal(""), note = useSignal("");
  useEffect(() => {
    if (!PICTURES.includes(file.mimeType) || file.size > LARGEST_PICTURE) return undefined;
    const near = new IntersectionObserver((seen) => {
      if (!seen.some((s) => s.isIntersecting)) return;
      near.disconnect();
      address(file.mimeType, content).then((a) => { picture.value = a; }, (e) => { note.value = e.message; });
    });
    if (box.current) near.observe(box.current);
    return () => { near.disconnect(); if (picture.value) URL.revokeObjectURL(picture.value); };
  }, []);
  const save = async () => {
    try {
      const link = Object.assign(document.createElement("a"), { href: await address("application/octet-stream", content), download: file.name });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    } catch (e) { note.value = e.message; }
  };
  return html`<div class="file" ref=${box}>${picture.value && html`<img class="picture" src=${picture.value} alt=${plain(file.name)}/>`}
    <button type="button" class="link-like ellipsis" title=${`Save ${plain(file.name)}`} onClick=${save}>${plain(file.name)}</button> <span class="quiet">${size(file.size)} ${plain(note.value)}</span></div>`;
}

// The type of the Blob is from our own list and not from the response, so that the browser runs no script in a picture.
/** @param {string} kind @param {Content} content */
async function address(kind, content) {
  return URL.createObjectURL(new Blob([await (await content()).arrayBuffer()], { type: kind }));
}
