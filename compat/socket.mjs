// A small client on the npm package ws: as a developer writes it after reading the page about the protocol.
import WebSocket from "ws";
import { within } from "./report.mjs";

export const allScopes = ["operator.read", "operator.write", "operator.admin"];

export class Client {
  constructor(url, onFrame = () => {}) {
    this.pending = new Map();
    this.waiting = [];
    this.events = [];
    this.next = 0;
    this.onFrame = onFrame;
    this.ws = new WebSocket(url, { perMessageDeflate: true });
    this.closed = new Promise((yes) => this.ws.on("close", (code, reason) => yes({ code, reason: reason.toString() })));
    this.opened = new Promise((yes, no) => {
      this.ws.on("open", yes);
      this.ws.on("error", no);
    });
    this.ws.on("message", (data) => this.take(JSON.parse(data.toString())));
  }

  take(frame) {
    if (frame.type === "res") {
      const call = this.pending.get(frame.id);
      this.onFrame(frame, call);
      call?.frames.push(frame);
      if (call && (call.frames.length === call.want || !frame.ok)) {
        this.pending.delete(frame.id);
        call.done(call.want === 1 ? frame : call.frames);
      }
      return;
    }
    this.onFrame(frame);
    this.events.push(frame);
    this.waiting = this.waiting.filter((w) => !(w.want(frame) && (w.done(frame), true)));
  }

  // call sends a request and waits for its answer, for two with want = 2.
  call(method, params, want = 1) {
    const id = String(++this.next);
    const answer = new Promise((done) => this.pending.set(id, { method, params, frames: [], want, done }));
    this.ws.send(JSON.stringify({ type: "req", id, method, ...(params === undefined ? {} : { params }) }));
    return within(20_000, `the answer to ${method}`, answer);
  }

  // event waits for an event, also one that came already.
  event(what, want) {
    const there = this.events.find(want);
    if (there) return Promise.resolve(there);
    return within(20_000, what, new Promise((done) => this.waiting.push({ want, done })));
  }

  chat(runId, state) {
    return this.event(`chat ${state} of ${runId}`, (f) => f.event === "chat" && f.payload.runId === runId && f.payload.state === state);
  }

  async login(auth, { caps = [], scopes = allScopes } = {}) {
    await within(10_000, "the socket", this.opened);
    return this.call("connect", {
      minProtocol: 4, maxProtocol: 4, role: "operator", scopes, caps, auth,
      client: { id: "compat", version: "1", platform: process.platform, mode: "test" },
    });
  }

  close() {
    this.ws.close();
    return this.closed;
  }
}

export const text = (message) => (message?.content ?? []).map((p) => p.text ?? "").join("");
