// The wire: one socket to this page's own origin, requests with answers, events, and a new socket when one was lost.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15000;
const SILENCE = 60000; // twice the distance of ticks

export class Refused extends Error {
  constructor(error) {
    super(error.message);
    this.code = error.details?.code ?? error.code;
  }
}

export class Gateway {
  #token; #socket = null; #waiting = new Map(); #next = 1; #pause = FIRST_PAUSE; #timer = 0; #watch = 0; #closed = false;

  // hooks: up(hello), down(reason), refused(message), event(name, payload)
  constructor(token, hooks) {
    this.#token = token;
    this.hooks = hooks;
  }

  open() {
    const address = new URL("../ws", document.baseURI); // a proxy may serve the page below a path
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onmessage = (m) => this.#frame(socket, JSON.parse(m.data));
    socket.onclose = (e) => this.#lost(socket, e);
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#socket?.close(1000);
    this.#fail("signed out");
  }

  call(method, params = {}) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new Error("not connected"));
        return;
      }
      const id = String(this.#next++);
      this.#waiting.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  // http asks a path of this gateway with the token of this tab.
  async http(path, options = {}) {
    const answer = await fetch(new URL(`../${path.replace(/^\//, "")}`, document.baseURI), { ...options, headers: { Authorization: `Bearer ${this.#token}` }, redirect: "error", cache: "no-store", credentials: "omit" });
    if (answer.ok) return answer;
    const refusal = await answer.json().catch(() => ({}));
    throw new Error(refusal.error?.message ?? `the gateway answered ${answer.status}`);
  }

  // A list as if it were one page. Pages are bounded in bytes, so one may have fewer members than were asked for. most: how many members to read.
  async list(method, member, params = {}, most = Infinity) {
    const all = [];
    for (let offset = 0; offset !== null && all.length < most;) {
      const page = await this.call(method, { ...params, limit: Math.min(200, most - all.length), offset });
      all.push(...page[member]);
      offset = page[member].length > 0 ? page.nextOffset ?? null : null;
    }
    return all;
  }

  #frame(socket, frame) {
    if (socket !== this.#socket) return;
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => socket.close(4000, "silence"), SILENCE);
    if (frame.type === "event" && frame.event === "connect.challenge") return this.#hello();
    if (frame.type === "event") return this.hooks.event(frame.event, frame.payload);
    const asked = this.#waiting.get(frame.id);
    this.#waiting.delete(frame.id);
    if (!asked) return undefined;
    return frame.ok ? asked.resolve(frame.payload) : asked.reject(new Refused(frame.error));
  }

  // The token is sent only after the challenge: whatever else listens on the port never gets it.
  #hello() {
    this.call("connect", {
      minProtocol: 4, maxProtocol: 4, role: "operator", caps: ["laneway-ext"],
      scopes: ["operator.read", "operator.write", "operator.admin"],
      client: { id: "laneway-dashboard", version: "1", platform: "web", mode: "ui" },
      auth: { token: this.#token },
    }).then((hello) => {
      this.#pause = FIRST_PAUSE;
      this.hooks.up(hello);
    }).catch((fault) => {
      if (fault instanceof Refused && String(fault.code).startsWith("AUTH_")) {
        this.#closed = true;
        this.hooks.refused(fault.message);
      }
    });
  }

  #lost(socket, event) {
    if (socket !== this.#socket) return;
    clearTimeout(this.#watch);
    this.#fail("the connection was lost");
    if (this.#closed) return;
    this.hooks.down(event.reason || "connection lost");
    this.#timer = setTimeout(() => this.open(), this.#pause * (0.75 + Math.random() / 2));
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  #fail(why) {
    for (const { reject } of this.#waiting.values()) reject(new Error(why));
    this.#waiting.clear();
  }
}
