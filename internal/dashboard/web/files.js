// Files of messages: chosen or pasted, sent before the message that names them, and shown behind it. Content comes over HTTP with the token of this tab and is
// shown as a Blob.

import { el } from "./dom.js";

const MOST = 16; // of one message
const LARGEST = 20 * 1024 * 1024;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LARGEST_PICTURE = 5 * 1024 * 1024; // that is shown without a click

export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 * 1024 ? `${Math.round(bytes / 1024)} KB` : `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

// Outgoing are the files that the next message brings along.
export class Outgoing {
  #files = [];

  constructor(fault) {
    this.fault = fault; // called with the reason why a file is not taken
    this.chips = el("div", { class: "chips", hidden: true });
    this.input = el("input", { type: "file", multiple: true, hidden: true, onchange: () => { this.add(this.input.files); this.input.value = ""; } });
    this.button = el("button", { type: "button", class: "plain attach", title: "Attach files", "aria-label": "Attach files", onclick: () => this.input.click() }, "+");
  }

  get length() { return this.#files.length; }

  add(list) {
    for (const f of list) {
      if (f.size > LARGEST) this.fault(`${f.name} is larger than ${size(LARGEST)}.`);
      else if (this.#files.length === MOST) this.fault(`A message takes ${MOST} files.`);
      else this.#files.push(f);
    }
    this.#draw();
  }

  // The files and their names, and none are left here.
  take() {
    const taken = this.#files;
    this.#files = [];
    this.#draw();
    return taken;
  }

  #draw() {
    this.chips.hidden = this.#files.length === 0;
    this.chips.replaceChildren(...this.#files.map((f) => el("span", { class: "chip" }, el("span", { class: "ellipsis" }, f.name), el("span", { class: "quiet" }, size(f.size)),
      el("button", { type: "button", "aria-label": `Remove ${f.name}`, onclick: () => { this.#files = this.#files.filter((o) => o !== f); this.#draw(); } }, "×"))));
  }
}

// upload sends files one after the other and returns what a message names.
export async function upload(gateway, files) {
  const sent = [];
  for (const f of files) {
    const form = new FormData();
    form.append("purpose", "user_data");
    form.append("file", f, f.name);
    const answer = await gateway.http("v1/files", { method: "POST", body: form });
    sent.push({ fileId: (await answer.json()).id });
  }
  return sent;
}

// Shown are the files of a conversation. The addresses of Blobs live until clear.
export class Shown {
  #addresses = [];
  #near = new IntersectionObserver((seen) => seen.filter((s) => s.isIntersecting).forEach((s) => { this.#near.unobserve(s.target); s.target.dispatchEvent(new Event("near")); }));

  clear() {
    this.#addresses.splice(0).forEach((a) => URL.revokeObjectURL(a));
    this.#near.disconnect();
  }

  // Files that were chosen here: they are shown before the gateway has them.
  chosen(files) {
    return this.#row(files.map((f) => this.#one({ name: f.name, mimeType: f.type, size: f.size }, () => Promise.resolve(f))));
  }

  // Files of a message of the history.
  kept(gateway, files) {
    return this.#row(files.map((f) => this.#one(f, async () => (await gateway.http(f.url)).blob())));
  }

  #row(items) { return items.length > 0 ? el("div", { class: "files" }, ...items) : null; }

  #one(f, content) {
    const note = el("span", { class: "quiet" });
    const box = el("div", { class: "file" }, el("button", {
      type: "button", class: "link-like ellipsis", title: `Save ${f.name}`, onclick: () => this.#save(f, content).catch((fault) => { note.textContent = fault.message; }),
    }, f.name), el("span", { class: "quiet" }, size(f.size)), note);
    if (PICTURES.includes(f.mimeType) && f.size <= LARGEST_PICTURE) {
      box.addEventListener("near", () => this.#picture(f, content).then((p) => box.prepend(p)).catch((fault) => { note.textContent = fault.message; }), { once: true });
      this.#near.observe(box);
    }
    return box;
  }

  // The kind of the Blob is one of ours, whatever the answer has: a browser runs nothing in a picture.
  async #address(kind, content) {
    const address = URL.createObjectURL(new Blob([await (await content()).arrayBuffer()], { type: kind }));
    this.#addresses.push(address);
    return address;
  }

  async #picture(f, content) {
    return el("div", { class: "picture" }, el("img", { src: await this.#address(f.mimeType, content), alt: f.name }));
  }

  async #save(f, content) {
    const link = el("a", { href: await this.#address("application/octet-stream", content), download: f.name });
    link.click();
  }
}
