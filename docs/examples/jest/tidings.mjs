import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
export async function start() {
  const received = [], waiting = [];
  const headers = { "Content-Type": "application/json", Authorization: "Basic " + btoa("admin:secret") };
  const webhook = createServer(async (request, response) => {
    const body = JSON.parse(Buffer.concat(await request.toArray()));
    response.end(() => (waiting.length ? waiting.shift()(body) : received.push(body)));
  }).listen(0, "127.0.0.1");
  const variables = { TIDINGS_DATA_DIR: mkdtempSync("/tmp/tidings-"), TIDINGS_ROBOTS_PER_KIND: "1" };
  for (const part of ["API", "NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS"])
    variables[`TIDINGS_${part}_ADDRESS`] = "127.0.0.1:0";
  let api, child = spawn("tidings", ["up"], { env: { ...process.env, ...variables } });
  for await (const line of createInterface(child.stdout)) if ((api = line.match(/^ {2}API +(\S+)/)?.[1])) break;
  const call = async (method, path, body) =>
    (await fetch(api + path, { method, headers, body: JSON.stringify(body) })).json();
  const { users } = await call("POST", "/v1/users/login", { new_password: "Tidings-2026!" });
  headers.Authorization = "Bearer " + users[0].token;
  const webhooks = { url: `http://127.0.0.1:${webhook.address().port}/` };
  await call("PATCH", "/v1/settings/application", { webhooks, sent_status: true });
  const receive = () => received.shift() ?? new Promise((resolve) => waiting.push(resolve));
  return { call, receive, stop: () => new Promise((end) => child.once("exit", () => webhook.close(end)).kill()) };
}
