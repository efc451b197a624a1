// The TypeScript client @kapso/whatsapp-cloud-api: messages, files, templates, read marks and profile; it verifies and
// normalises the webhooks.
import http from "node:http";
import { WhatsAppClient } from "@kapso/whatsapp-cloud-api";
import { normalizeWebhook, verifySignature } from "@kapso/whatsapp-cloud-api/server";

const { API_URL, TOKEN, PHONE_NUMBER_ID: phoneNumberId, WABA_ID: businessAccountId, READER: to, ECHO } = process.env;
const client = new WhatsAppClient({ baseUrl: API_URL, accessToken: TOKEN, graphVersion: "v25.0" });
const received = [];

async function sent(kind, promise) {
  const { messages } = await promise;
  console.log("sent", kind, messages[0].id);
  return messages[0].id;
}

async function done(what, promise) {
  const answer = await promise;
  if (!answer.success) throw new Error(`${what}: ${JSON.stringify(answer)}`);
  console.log("done", what);
}

async function run() {
  const { messages, media, templates, phoneNumbers } = client;
  await sent("text", messages.sendText({ phoneNumberId, to, body: "Hello" }));
  const file = await (await fetch(process.env.FILE_URL)).blob();
  const { id } = await media.upload({ phoneNumberId, type: "image", file, fileName: "a.png" });
  await sent("image", messages.sendImage({ phoneNumberId, to, image: { id, caption: "A picture" } }));
  const bytes = await media.download({ mediaId: id, phoneNumberId, auth: "always" });
  if (bytes.byteLength !== file.size) throw new Error(`download: ${bytes.byteLength} bytes`);
  console.log("done download");
  await sent("location", messages.sendLocation({ phoneNumberId, to, location: { latitude: 48.2, longitude: 16.4 } }));
  const name = { formattedName: "Ana B", firstName: "Ana" };
  await sent("contacts", messages.sendContacts({ phoneNumberId, to, contacts: [{ name, phones: [{ phone: "+1555" }] }] }));
  const buttons = [{ id: "1", title: "Yes" }];
  await sent("buttons", messages.sendInteractiveButtons({ phoneNumberId, to, bodyText: "Soup?", buttons }));
  const sections = [{ title: "Today", rows: [{ id: "1", title: "Soup" }] }];
  await sent("list", messages.sendInteractiveList({ phoneNumberId, to, bodyText: "Soup?", buttonText: "Menu", sections }));
  const parameters = { displayText: "Open", url: "https://shop.example" };
  await sent("link", messages.sendInteractiveCtaUrl({ phoneNumberId, to, bodyText: "Shop", parameters }));
  const components = [{ type: "BODY", text: "Good day {{1}}", example: { bodyText: [["Ana"]] } }];
  const definition = { businessAccountId, name: "kapso", language: "en_US", category: "UTILITY", components };
  await templates.create(definition);
  const list = await templates.list({ businessAccountId, name: "kapso" });
  if (list.data.length !== 1) throw new Error(`templates: ${JSON.stringify(list)}`);
  const body = [{ type: "body", parameters: [{ type: "text", text: "Eva" }] }];
  const template = { name: "kapso", language: { code: "en_US" }, components: body };
  await sent("template", messages.sendTemplate({ phoneNumberId, to, template }));
  await done("template deleted", templates.delete({ businessAccountId, name: "kapso" }));
  await done("profile", phoneNumbers.businessProfile.update({ phoneNumberId, about: "Open" }));
  await sent("echoed", messages.sendText({ phoneNumberId, to: ECHO, body: "Grüße" }));
  const message = await new Promise((resolve) => received.push(resolve));
  await done("read", messages.markRead({ phoneNumberId, messageId: message.id, typingIndicator: { type: "text" } }));
  const reaction = { messageId: message.id, emoji: "👍" };
  await sent("reaction", messages.sendReaction({ phoneNumberId, to: ECHO, reaction }));
  await done("deleted", media.delete({ mediaId: id, phoneNumberId }));
  console.log("done all");
}

http
  .createServer(async (request, response) => {
    const query = new URL(request.url, "http://localhost").searchParams;
    if (request.method === "GET")
      return query.get("hub.verify_token") === process.env.VERIFY_TOKEN
        ? response.end(query.get("hub.challenge"))
        : response.writeHead(403).end();
    const rawBody = Buffer.concat(await request.toArray());
    const signatureHeader = request.headers["x-hub-signature-256"];
    if (!verifySignature({ appSecret: process.env.APP_SECRET, rawBody, signatureHeader }))
      return response.writeHead(401).end();
    response.end();
    const events = normalizeWebhook(JSON.parse(rawBody));
    for (const status of events.statuses) console.log("status", status.status, status.id);
    for (const message of events.messages) {
      console.log("message", message.type, message.from);
      if (received.length) received.shift()(message);
    }
  })
  .listen(Number(process.env.PORT), "127.0.0.1", () => console.log("ready"));
process.stdin.once("data", () => run().catch((error) => console.log("failed", error.stack)));
