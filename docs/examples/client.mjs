// Send a text message: node client.mjs TO TEXT [KEY]. Calls with the same KEY send one message.

const { API_URL = "http://127.0.0.1:9090", API_PASSWORD, API_FIRST_PASSWORD, WEBHOOK_URL } = process.env;
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
let token = "";

async function logIn(password, body = {}) {
  const Authorization = "Basic " + Buffer.from(`admin:${password}`).toString("base64");
  const request = { method: "POST", headers: { Authorization }, body: JSON.stringify(body) };
  const response = await fetch(`${API_URL}/v1/users/login`, request);
  if (!response.ok) throw new Error(await response.text());
  token = (await response.json()).users[0].token;
}

async function call(method, path, body, key = crypto.randomUUID()) { // the key makes it safe to repeat the call
  for (const delay of [1, 2, 4, 8, 16]) {
    const headers = { Authorization: `Bearer ${token}`, "Idempotency-Key": key };
    const request = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(40_000) };
    const response = await fetch(API_URL + path, request).catch(() => null);
    if (response?.ok) return response.json();
    if (response?.status === 401) {
      await logIn(API_PASSWORD); // the token has expired
    } else if (response === null || [409, 429, 500, 503].includes(response.status)) {
      await sleep(response?.headers.get("Retry-After") ?? delay); // without a response it may have taken effect
    } else {
      throw new Error(await response.text());
    }
  }
  throw new Error(`${method} ${path}: no success in 5 attempts`);
}

const [to, text, key] = process.argv.slice(2);
if (API_FIRST_PASSWORD) await logIn(API_FIRST_PASSWORD, { new_password: API_PASSWORD });
await call("PATCH", "/v1/settings/application", { webhooks: { url: WEBHOOK_URL }, sent_status: true });
const answer = await call("POST", "/v1/messages", { to, text: { body: text } }, key);
console.log(answer.messages[0].id);
