// The protocol: one socket to the page's own origin, requests with answers, events, and a new socket when one was lost.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 30000;
const OPENING = 10000; // from the open socket to the answer to connect
const SILENCE = 15000; // without a frame, health is called
const ANSWER = 5000; // without its answer, the gateway is shown as not answering
const LOST = 60000; // without a frame, the socket is closed

export class Refused extends Error {
  /** @param {wire.Error} error */
  constructor(error) {
    super(error.message);
    this.code = error.details?.code ?? error.code;
    this.field = error.details?.field ?? ""; // the path of the invalid member
    if (this.field && error.message.startsWith(this.field)) this.message = error.message.slice(this.field.length).replace(/^: /, "").replace(/^ is in the past/, "In the past"); // the page shows it at the field
    this.retryable = error.retryable === true;
    this.reason = error.details?.authReason;
  }
}

// NotConfirmed means that the connection was lost before the answer; the call may have been executed.
export class NotConfirmed extends Error {}

/** @param {string} path */
const beside = (path) => new URL(`../${path.replace(/^\//, "")}`, document.baseURI); // a proxy may serve the page below a path

export class Gateway {
  #token; #next = 1; #failures = 0; #timer = 0; #watch = 0; #seen = 0; #probing = false;
  /** @type {page.Link["state"]} */ #state = "";
  /** @type {WebSocket | null} */ #socket = null;
  #first = true; // the socket has received no frame yet
  /** @type {Map<string, {resolve: (result: any) => void, reject: (why: Error) => void}>} */ #waiting = new Map();

  // hooks: up(hello), link({state, since, why, retryAt}), refused(message), event(name, payload). state: connecting, live, stale, offline, paused.
  /** @param {string} token @param {page.Hooks} hooks */
  constructor(token, hooks) {
    this.#token = token;
    this.hooks = hooks;
  }

  open() {
    clearTimeout(this.#timer);
    const address = beside("ws");
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.#socket = socket;
    this.#first = true;
    if (this.#state !== "offline") this.#link("connecting");
    socket.onmessage = (m) => this.#frame(socket, JSON.parse(m.data));
    socket.onclose = (e) => this.#lost(socket, e);
    this.#watch = setTimeout(() => this.#giveUp(socket), OPENING);
  }

  close() { this.#end("", "signed out"); }

  // pause closes the connection of a hidden tab; open makes a new one.
  pause() { this.#end("paused", "the tab is hidden"); }

  // retry connects now instead of after the pause.
  retry() { if (this.#state === "offline" && !this.#socket) this.open(); }

  /** @template {page.Method} M @param {M} method @param {page.Given<M>} given @returns {Promise<page.Result<M>>} */
  call(method, ...given) {
    const [params = {}] = given;
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new Error("The gateway is not connected; nothing was done."));
        return;
      }
      const id = String(this.#next++);
      this.#waiting.set(id, { resolve, reject });
      this.#socket.send(JSON.stringify({ type: "req", id, method, params }));
    });
  }

  // http calls a path of this gateway with the token of this tab.
  /** @type {page.Http} */
  http = async (path, options = {}) => {
    const answer = await fetch(beside(path), { ...options, headers: { Authorization: `Bearer ${this.#token}` }, redirect: "error", cache: "no-store", credentials: "omit" });
    if (answer.ok) return answer;
    const refusal = await answer.json().catch(() => ({}));
    throw new Error(refusal.error?.message ?? `the gateway answered ${answer.status}`);
  };

  // list reads a list over several pages. Pages are bounded in bytes, so a page may have fewer members than requested. most is how many members to read.
  /** @type {page.List} */
  list = async (method, member, params = {}, most = Infinity) => {
    /** @type {any[]} */ const all = [];
    for (let offset = 0; offset !== null && all.length < most;) {
      /** @type {any} */ const page = await /** @type {any} */ (this).call(method, { ...params, limit: Math.min(200, most - all.length), offset });
      all.push(...page[member]);
      offset = page[member].length > 0 ? page.nextOffset ?? null : null;
    }
    return /** @type {any} */ (all);
  };

  // check calls health when no frame has arrived for some time, and shows a gateway that does not answer.
  check() {
    clearTimeout(this.#watch);
    const idle = Date.now() - this.#seen;
    if (idle < SILENCE) return this.#in(SILENCE - idle);
    if (!this.#probing) {
      this.#probing = true;
      this.call("health").catch(() => {});
      return this.#in(ANSWER);
    }
    if (idle > LOST) return this.#giveUp(this.#socket);
    if (this.#state !== "stale") this.#link("stale", { since: this.#seen });
    return this.#in(ANSWER);
  }

  /** @param {number} ms */
  #in(ms) { this.#watch = setTimeout(() => this.check(), ms); }

  /** @param {WebSocket} socket @param {any} frame */
  #frame(socket, frame) {
    if (socket !== this.#socket) return undefined;
    this.#seen = Date.now();
    this.#probing = false;
    this.#first = false;
    if (frame.type === "event" && frame.event === "connect.challenge") return this.#hello();
    if (this.#state === "stale") this.#link("live");
    if (frame.type === "event") return this.hooks.event(frame.event, frame.payload);
    const call = this.#waiting.get(frame.id);
    this.#waiting.delete(frame.id);
    if (!call) return undefined;
    return frame.ok ? call.resolve(frame.payload) : call.reject(new Refused(frame.error));
  }

  // The token is sent only after the challenge, so that another program on the port does not receive it.
  #hello() {
    this.call("connect", {
      minProtocol: 4, maxProtocol: 4, role: "operator", caps: ["laneway-ext", "tool-events", "cron-brief"],
      scopes: ["operator.read", "operator.write", "operator.admin"],
      client: { id: "laneway-dashboard", version: "1", platform: "web", mode: "ui" },
      auth: { token: this.#token },
    }).then((hello) => {
      this.#failures = 0;
      this.check();
      this.hooks.up(hello);
      this.#link("live");
    }).catch((fault) => {
      if (fault instanceof Refused && String(fault.code).startsWith("AUTH_")) {
        this.close();
        this.hooks.refused(sentence(fault));
      }
    });
  }

  /** @param {page.Link["state"]} state @param {Omit<page.Link, "state">} more */
  #link(state, more = {}) {
    this.#state = state;
    this.hooks.link({ state, ...more });
  }

  /** @param {WebSocket | null} socket */
  #giveUp(socket) {
    socket?.close(4000, "silence");
    this.#lost(socket, { reason: "it does not answer" }); // without a peer, the close event of the connection comes much later
  }

  /** @param {WebSocket | null} socket @param {{code?: number, reason: string}} event */
  async #lost(socket, event) {
    if (!socket || socket !== this.#socket) return;
    const before = this.#state, first = this.#first;
    this.#end("", "The connection was lost before the answer.");
    if (event.code === 1008 && !first) return this.hooks.refused(event.reason === "credential has expired" ? EXPIRED : event.reason === "credential was revoked" ? REVOKED : event.reason || "The token is no longer valid.");
    const pause = Math.max(FIRST_PAUSE, Math.random() * Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** ++this.#failures));
    const offline = /** @type {page.Link} */ ({ state: "offline", since: before === "offline" ? undefined : this.#seen || Date.now(), why: event.reason || "connection lost", retryAt: Date.now() + pause });
    this.#link("offline", offline);
    this.#timer = setTimeout(() => this.open(), pause);
    if (!first) return undefined;
    const why = await reason();
    if (this.#state === "offline") this.hooks.link({ ...offline, why });
    return undefined;
  }

  /** @param {page.Link["state"]} state @param {string} why */
  #end(state, why) {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    const socket = this.#socket;
    this.#socket = null;
    this.#probing = false;
    socket?.close(1000);
    for (const { reject } of this.#waiting.values()) reject(new NotConfirmed(why));
    this.#waiting.clear();
    if (state) this.#link(state);
    else this.#state = "";
  }
}

const EXPIRED = "This token has expired. Run: laneway dashboard";
const REVOKED = "This token was revoked, or its rights were changed. Run: laneway dashboard";

/** @param {Refused} fault */
function sentence(fault) {
  switch (fault.code) {
    case "AUTH_TOKEN_MISMATCH": return fault.reason === "token_expired" ? EXPIRED : "This token is not valid here: it is wrong, or it was revoked earlier. Run: laneway dashboard";
    case "AUTH_RATE_LIMITED": return "Too many wrong tokens came from this address. Wait a minute.";
    default: return fault.message;
  }
}

// reason finds out why a socket failed before its first frame, because a browser does not disclose why an upgrade was refused. The probes need no credential.
async function reason() {
  const get = (/** @type {string} */ path) => fetch(beside(path), { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(ANSWER) });
  try {
    const health = await get("healthz").then((r) => r.json());
    if (health.status === "draining") return "it is draining, and will be back";
    if (!(await get("readyz")).ok) return "it is up, but not ready";
    return `it is up, but refuses this origin: set LANEWAY_TRUSTED_PROXIES, or LANEWAY_ALLOWED_ORIGINS=${location.origin}`;
  } catch {
    return "it is down";
  }
}
