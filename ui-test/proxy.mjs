// A reverse proxy that serves a gateway below a path and removes the path, like the proxies of docs/reverse-proxy.md. With host "" it forwards the Host header.

import { createServer, request } from "node:http";

export async function proxy(target, path, host = "") {
  const to = new URL(target);
  const forward = (req) => ({ host: to.hostname, port: to.port, method: req.method, path: req.url.slice(path.length), headers: { ...req.headers, ...(host ? { host } : {}) } });
  const below = (req) => req.url.startsWith(`${path}/`);
  const server = createServer((req, res) => {
    if (!below(req)) { res.writeHead(404).end(); return; }
    const up = request(forward(req), (answer) => { res.writeHead(answer.statusCode, answer.headers); answer.pipe(res); });
    up.on("error", () => res.writeHead(502).end());
    req.pipe(up);
  });
  server.on("upgrade", (req, socket, head) => {
    const up = request(forward(req));
    const lines = (answer) => `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}\r\n${answer.rawHeaders.map((h, i) => (i % 2 ? `${h}\r\n` : `${h}: `)).join("")}\r\n`;
    up.on("upgrade", (answer, other, rest) => {
      socket.write(lines(answer));
      if (rest.length > 0) socket.write(rest);
      if (head.length > 0) other.write(head);
      for (const [a, b] of [[socket, other], [other, socket]]) { a.pipe(b); a.on("error", () => b.destroy()); }
    });
    up.on("response", (answer) => { socket.end(lines(answer)); answer.resume(); });
    up.on("error", () => socket.destroy());
    up.end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  server.unref(); // it must not outlive the tests that failed before they closed it
  return { url: `http://127.0.0.1:${server.address().port}${path}`, close: () => { server.closeAllConnections(); server.close(); } };
}
