// A Telegram Bot API with one bot: the messages to it, and the messages that it sends.

import { createServer } from "node:http";

const BOT = 123456789, TOKEN = `${BOT}:TEST-Token-canary-0123456789abcdefghi`;

// telegram starts the API. settings is the section of the configuration, write queues a message of a person, and sent has the messages of the bot by chat.
export async function telegram() {
  const updates = [], sent = new Map();
  let wake = () => {};
  const methods = {
    getMe: () => ({ id: BOT, is_bot: true, first_name: "bot", username: "lane_bot" }),
    getUpdates: async (p) => {
      const left = () => updates.filter((u) => u.update_id >= Number(p.get("offset") ?? 0));
      if (left().length === 0) await new Promise((done) => { wake = done; setTimeout(done, Number(p.get("timeout") ?? 0) * 1000).unref(); });
      return left();
    },
    sendMessage: (p) => {
      const id = Number(p.get("chat_id")), texts = sent.get(id) ?? [];
      sent.set(id, [...texts, p.get("text")]);
      return { message_id: 1000 + texts.length, date: Math.floor(Date.now() / 1000), chat: { id, type: "private" }, text: p.get("text") };
    },
  };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const result = await methods[request.url.split("/").at(-1)]?.(new URLSearchParams(body)) ?? true;
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify({ ok: true, result }));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  server.unref(); // it must not outlive the tests that failed before they closed it
  return {
    settings: `channels: {telegram: {token: "${TOKEN}", api_url: "http://127.0.0.1:${server.address().port}", poll_timeout: 1s}}\n`,
    sent,
    write: (id, name, text) => {
      const n = updates.length + 1;
      updates.push({ update_id: n, message: { message_id: n, date: Math.floor(Date.now() / 1000), chat: { id, type: "private", first_name: name }, from: { id, is_bot: false, first_name: name }, text } });
      wake();
    },
    close: () => { server.closeAllConnections(); server.close(); },
  };
}
