import { afterAll, beforeAll, expect, jest, test } from "@jest/globals";
import { start } from "./tidings.mjs";

jest.setTimeout(60_000);
const READER = "15550110000";
let tidings;
beforeAll(async () => (tidings = await start()));
afterAll(() => tidings.stop());

test("a message is read, and an answer arrives", async () => {
  await tidings.call("POST", "/v1/messages", { to: READER, text: { body: "Soup or pasta?" } });
  const statuses = [];
  while (statuses.length < 3) statuses.push((await tidings.receive()).statuses[0].status);
  expect(statuses).toEqual(["sent", "delivered", "read"]);
  await tidings.call("POST", `/tidings/recipients/${READER}/messages`, { text: { body: "Soup" } });
  expect((await tidings.receive()).messages[0].text.body).toBe("Soup");
});
