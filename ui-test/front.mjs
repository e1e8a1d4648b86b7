// nginx or Caddy with TLS in front of a gateway, below a path, with the unchanged settings of docs/reverse-proxy.md.

import { execFileSync, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";

const PAGE = readFileSync(new URL("../docs/reverse-proxy.md", import.meta.url), "utf8");
const PATH = "/team/laneway";
const AROUND = {
  nginx: (dir, block) => `daemon off; pid ${dir}/pid; error_log ${dir}/error.log; master_process off;\nevents {}\nhttp {\naccess_log off;\n${["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((n) => `${n}_temp_path ${dir}/${n};\n`).join("")}${block}}\n`,
  caddyfile: (_, block) => `{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n${block}`,
};

// front starts the proxy at a free port. language is the language of the code block in docs/reverse-proxy.md: nginx or caddyfile.
export async function front(proxy, dir, port, gateway) {
  const language = proxy === "caddy" ? "caddyfile" : proxy, around = AROUND[language];
  if (!around) throw new Error(`PROXY is ${proxy}; it must be nginx or caddy`);
  const block = new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s").exec(PAGE)[1];
  const key = join(dir, "gateway.example.key"), certificate = join(dir, "gateway.example.pem"), config = join(dir, "front");
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], { stdio: "ignore" });
  writeFileSync(config, around(dir, block.replaceAll("127.0.0.1:18790", new URL(gateway).host).replaceAll("/laneway/", `${PATH}/`).replaceAll("/etc/ssl/", `${dir}/`)
    .replace("listen 443", `listen 127.0.0.1:${port}`).replace("gateway.example {", `https://127.0.0.1:${port} {\n\tbind 127.0.0.1\n\ttls ${certificate} ${key}`)));
  const [program, args] = language === "nginx" ? ["nginx", ["-p", dir, "-c", config]] : ["caddy", ["run", "--adapter", "caddyfile", "--config", config]];
  const running = spawn(program, args, { env: { PATH: `${process.env.PATH}:/usr/sbin`, HOME: dir, XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir }, stdio: ["ignore", "ignore", "pipe"] });
  let log = "", failed = null;
  running.stderr.on("data", (d) => { log += d; });
  running.once("error", (e) => { failed = e; });
  const open = () => new Promise((done) => { const s = connect(port, "127.0.0.1", () => { s.destroy(); done(true); }); s.on("error", () => done(false)); });
  const ready = async () => {
    if (failed || running.exitCode !== null) throw new Error(`${program} ended: ${failed ?? log}`);
    return open();
  };
  return { url: `https://127.0.0.1:${port}${PATH}`, ready, stop: () => running.kill("SIGKILL") };
}
