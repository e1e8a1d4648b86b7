// A gateway of the real binary in a new directory, on SQLite or on a new PostgreSQL database. PROXY puts nginx or caddy in front of it. With REPLICAS, a
// gateway on PostgreSQL has that many processes: the page uses the first one, which claims no jobs, and the command line uses the second.

import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { front } from "./front.mjs";

const BINARY = process.env.LANEWAY ?? new URL("../bin/laneway", import.meta.url).pathname;
const SERVER = process.env.TEST_DATABASE_URL, PROXY = process.env.PROXY;
const START = 30_000;

export const REPLICAS = Number(process.env.REPLICAS ?? 1);
export const ENGINES = SERVER ? ["sqlite", "postgres"] : ["sqlite"];
export const TOKEN = "ui-admin-token-0123456789-abcdefghijk";
export const WRITER = "ui-write-token-0123456789-abcdefghijk";
export const READER = "ui-read-token-0123456789-abcdefghijkl";

export async function freePort() {
  const s = createServer();
  await new Promise((done) => s.listen(0, "127.0.0.1", done));
  const { port } = s.address();
  await new Promise((done) => s.close(done));
  return port;
}

// eventually calls f until it returns a true value, and fails with the description of what it was waiting for.
export async function eventually(what, f, ms = 30_000) {
  for (const until = Date.now() + ms; ;) {
    const got = await f();
    if (got) return got;
    if (Date.now() > until) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

// Replica is one process of a gateway.
class Replica {
  constructor(dir, name, port, config, env) {
    const path = join(dir, `${name}.yaml`), names = ["PATH", "HOME", "TMPDIR"].filter((n) => process.env[n]);
    this.url = `http://127.0.0.1:${port}`;
    this.env = { ...Object.fromEntries(names.map((n) => [n, process.env[n]])), LANEWAY_CONFIG: path, LANEWAY_CLUSTER_NODE_ID: name, ...env };
    writeFileSync(path, `data: ${dir}/${name}\nlisten: ["127.0.0.1:${port}"]\nmetrics_listen: "off"\n${config}`, { mode: 0o600 });
  }

  async serve() {
    this.log = "";
    this.process = spawn(BINARY, ["serve"], { env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    for (const out of [this.process.stdout, this.process.stderr]) out.on("data", (d) => { this.log += d; });
    this.ended = new Promise((done) => this.process.once("exit", done));
    await eventually(`the gateway is ready; it wrote: ${this.log}`, async () => {
      if (this.process.exitCode !== null) throw new Error(`the gateway ended: ${this.log}`);
      return fetch(`${this.url}/readyz`).then((r) => r.ok, () => false);
    }, START);
  }
}

const running = new Set();

// endGateways ends what a failed test left: a gateway that runs keeps the process of the tests alive, and the run would not end.
export async function endGateways() { for (const g of running) await g.stop(); }

export class Gateway {
  // url is the address of the page for a browser, direct the address without the proxy.
  static async start(engine = "sqlite", { agent = "main: {runner: echo, chunk: 4, chunk_delay: 20ms}", more = "", env = {} } = {}) {
    const g = new Gateway();
    running.add(g);
    g.commands = [];
    g.replicas = [];
    g.dir = mkdtempSync(join(tmpdir(), "laneway-ui-"));
    let database = "";
    if (engine === "postgres") {
      g.database = `ui_${process.pid}_${await freePort()}`;
      execFileSync("psql", [SERVER, "-qc", `create database ${g.database}`]);
      const address = SERVER.replace(/^(postgres(?:ql)?:\/\/[^/]*\/)[^?]*/, `$1${g.database}`); // its host may be a directory, which URL does not parse
      database = `database: ${JSON.stringify(address)}\n`;
    }
    const config = `${database}${PROXY ? "behind_tls_proxy: true\ntrusted_proxies: [127.0.0.1]\n" : ""}token: ${TOKEN}\nwrite_token: ${WRITER}\nread_token: ${READER}\nagents:\n  ${agent}\n${more}`;
    const count = engine === "postgres" ? REPLICAS : 1;
    for (let n = 1; n <= count; n++) g.replicas.push(new Replica(g.dir, `gw-${n}`, await freePort(), config, { ...env, ...(n === 1 && count > 1 ? { LANEWAY_ROLES: "gateway,channels,worker" } : {}) }));
    g.direct = g.url = g.replicas[0].url;
    g.env = g.replicas[0].env;
    if (PROXY) {
      g.front = await front(PROXY, g.dir, await freePort(), g.direct);
      g.url = g.front.url;
      await eventually("the proxy is ready", g.front.ready, START);
    }
    await g.serve();
    return g;
  }

  async serve() { for (const r of this.replicas) await r.serve(); }

  async cli(...args) {
    const { stdout } = await promisify(execFile)(BINARY, args, { env: (this.replicas[1] ?? this.replicas[0]).env });
    return stdout.trim();
  }

  // command starts a command that runs until it is stopped.
  command(...args) {
    const command = spawn(BINARY, args, { env: this.env, stdio: "ignore" });
    this.commands.push(command);
    return command;
  }

  signal(name) { for (const r of this.replicas) r.process?.kill(name); }

  async kill() { this.signal("SIGKILL"); await Promise.all(this.replicas.map((r) => r.ended)); }

  async stop() {
    running.delete(this);
    for (const c of this.commands) c.kill("SIGKILL");
    this.signal("SIGCONT");
    await this.kill();
    this.front?.stop();
    if (this.database) execFileSync("psql", [SERVER, "-qc", `drop database ${this.database} with (force)`]);
    rmSync(this.dir, { recursive: true, force: true });
  }
}
