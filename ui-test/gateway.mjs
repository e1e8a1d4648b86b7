// A gateway of the real binary in a directory of its own, on SQLite or on a database of its own in PostgreSQL.

import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const BINARY = process.env.LANEWAY ?? new URL("../bin/laneway", import.meta.url).pathname;
const SERVER = process.env.TEST_DATABASE_URL;
const START = 30_000;

export const ENGINES = SERVER ? ["sqlite", "postgres"] : ["sqlite"];
export const TOKEN = "ui-admin-token-0123456789-abcdefghijk";
export const READER = "ui-read-token-0123456789-abcdefghijkl";

export async function freePort() {
  const s = createServer();
  await new Promise((done) => s.listen(0, "127.0.0.1", done));
  const { port } = s.address();
  await new Promise((done) => s.close(done));
  return port;
}

// eventually calls f until it returns something true, and fails with what it was waiting for.
export async function eventually(what, f, ms = 30_000) {
  for (const until = Date.now() + ms; ;) {
    const got = await f();
    if (got) return got;
    if (Date.now() > until) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export class Gateway {
  static async start(engine = "sqlite", { agent = "main: {runner: echo, chunk: 4, chunk_delay: 20ms}", more = "", env = {} } = {}) {
    const g = new Gateway();
    g.dir = mkdtempSync(join(tmpdir(), "laneway-ui-"));
    g.port = await freePort();
    g.url = `http://127.0.0.1:${g.port}`;
    let database = "";
    if (engine === "postgres") {
      g.database = `ui_${process.pid}_${g.port}`;
      execFileSync("psql", [SERVER, "-qc", `create database ${g.database}`]);
      const address = SERVER.replace(/^(postgres(?:ql)?:\/\/[^/]*\/)[^?]*/, `$1${g.database}`); // its host may be a directory, which URL does not read
      database = `database: ${JSON.stringify(address)}\n`;
    }
    writeFileSync(join(g.dir, "config.yaml"), `data: ${g.dir}/data\nlisten: ["127.0.0.1:${g.port}"]\nmetrics_listen: "off"\n${database}token: ${TOKEN}\nread_token: ${READER}\nagents:\n  ${agent}\n${more}`, { mode: 0o600 });
    const names = ["PATH", "HOME", "TMPDIR"].filter((n) => process.env[n]);
    g.env = { ...Object.fromEntries(names.map((n) => [n, process.env[n]])), LANEWAY_CONFIG: join(g.dir, "config.yaml"), ...env };
    await g.serve();
    return g;
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

  async cli(...args) {
    const { stdout } = await promisify(execFile)(BINARY, args, { env: this.env });
    return stdout.trim();
  }

  // command starts a command that runs until it is stopped.
  command(...args) { return spawn(BINARY, args, { env: this.env, stdio: "ignore" }); }

  signal(name) { this.process.kill(name); }

  async kill() { this.signal("SIGKILL"); await this.ended; }

  async stop() {
    this.signal("SIGCONT");
    await this.kill();
    if (this.database) execFileSync("psql", [SERVER, "-qc", `drop database ${this.database} with (force)`]);
    rmSync(this.dir, { recursive: true, force: true });
  }
}
