// The vendor's Node SDK (npm `whatsapp`): it sends each kind of message, marks one as read, and sets the PIN. Its web
// server responds to the verification of the callback. It fails at every webhook with a body (`Buffer.concat` of a
// string), so a second server, which uses its function for signatures, receives those.
const http = require("node:http");
const WhatsApp = require("whatsapp");
const { generateXHub256Sig } = require("./node_modules/whatsapp/build/utils.js");

const { READER, ECHO, APP_SECRET, PORT, LISTENER_PORT } = process.env;
const wa = new WhatsApp(Number(process.env.PHONE_NUMBER_ID));
const received = [];

async function sent(kind, response) {
  const body = await response.responseBodyToJSON();
  if (response.statusCode() !== 200) throw new Error(`${kind}: ${response.statusCode()} ${JSON.stringify(body)}`);
  console.log("sent", kind, body.messages[0].id);
  return body.messages[0].id;
}

async function done(what, response) {
  const body = await response.responseBodyToJSON();
  if (!body.success) throw new Error(`${what}: ${JSON.stringify(body)}`);
  console.log("done", what);
}

async function run() {
  const to = Number(READER);
  const { messages } = wa;
  const text = { text: "Choose" };
  await sent("text", await messages.text({ body: "Hello", preview_url: false }, to));
  await sent("image", await messages.image({ link: process.env.FILE_URL, caption: "A picture" }, to));
  await sent("document", await messages.document({ link: process.env.FILE_URL, filename: "a.png" }, to));
  await sent("location", await messages.location({ latitude: 48.2, longitude: 16.4, name: "Shop", address: "1" }, to));
  const name = { formatted_name: "Ana B", first_name: "Ana" };
  await sent("contacts", await messages.contacts([{ name, phones: [{ phone: "+15550110009", type: "CELL" }] }], to));
  const reply = { type: "reply", reply: { id: "1", title: "Yes" } };
  await sent("buttons", await messages.interactive({ type: "button", body: text, action: { buttons: [reply] } }, to));
  const sections = [{ title: "Today", rows: [{ id: "1", title: "Soup", description: "hot" }] }];
  await sent("list", await messages.interactive({ type: "list", body: text, action: { button: "Menu", sections } }, to));
  const language = { policy: "deterministic", code: "en_US" };
  const components = [{ type: "body", parameters: [{ type: "text", text: "Ana" }] }];
  await sent("template", await messages.template({ name: "greeting", language, components }, to));
  await done("pin", await wa.twoStepVerification.setPin(246810));
  await sent("echoed", await messages.text({ body: "Grüße" }, Number(ECHO)));
  const message = await new Promise((resolve) => received.push(resolve));
  await done("read", await messages.status({ status: "read", message_id: message.id }));
  await sent("quoted", await messages.text({ body: "Thanks" }, to, message.id));
  console.log("done all");
}

// Verifications go to the SDK's server, webhooks to this one.
http
  .createServer(async (request, response) => {
    if (request.method === "GET") {
      const answer = await fetch(`http://127.0.0.1:${LISTENER_PORT}${request.url}`);
      response.writeHead(answer.status);
      response.end(await answer.text());
      return;
    }
    const raw = Buffer.concat(await request.toArray()).toString();
    const given = request.headers["x-hub-signature-256"];
    if (given !== `sha256=${generateXHub256Sig(raw, APP_SECRET)}`) return response.writeHead(401).end();
    response.end();
    for (const entry of JSON.parse(raw).entry)
      for (const { value } of entry.changes) {
        for (const status of value.statuses ?? []) console.log("status", status.status, status.id);
        for (const message of value.messages ?? []) {
          console.log("message", message.type, message.from);
          if (received.length) received.shift()(message);
        }
      }
  })
  .listen(Number(PORT), "127.0.0.1", () => {
    wa.webhooks.start((code, headers, body, response, error) => error && console.log("refused", error.message));
    console.log("ready");
  });
process.stdin.once("data", () => run().catch((error) => console.log("failed", error.stack)));
