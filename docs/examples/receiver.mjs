// Receive callbacks at a webhook URL, check their signatures, and print each event once.

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const { WEBHOOK_SECRET, PORT = "8800" } = process.env;
const key = Buffer.from(WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const handled = new Set(); // in production a table, written in the transaction that stores the events

function isGenuine(headers, body) {
  const sent = headers["webhook-timestamp"] ?? "";
  if (!/^[0-9]+$/.test(sent) || Math.abs(Date.now() / 1000 - Number(sent)) > 300) return false;
  const mac = createHmac("sha256", key).update(`${headers["webhook-id"]}.${sent}.`).update(body);
  const expected = Buffer.from("v1," + mac.digest("base64"));
  const given = (headers["webhook-signature"] ?? "").split(" ").map((one) => Buffer.from(one)); // two during a rotation
  return given.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
}

function handle({ statuses = [], messages = [] }) {
  for (const { status, id, errors = "" } of statuses) console.log("status", status, id, errors);
  for (const { type, from, text } of messages) console.log("message", type, from, text?.body ?? "");
}

async function receive(request, response) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const genuine = isGenuine(request.headers, body);
  const id = request.headers["webhook-id"];
  if (genuine && !handled.has(id)) { // the same callback may arrive again
    handle(JSON.parse(body));
    handled.add(id);
  }
  response.writeHead(genuine ? 200 : 401).end(); // after any other status than 200 the callback comes again
}

const server = createServer((request, response) => receive(request, response).catch(() => request.destroy()));
server.listen(Number(PORT), "127.0.0.1", () => console.log("ready"));
