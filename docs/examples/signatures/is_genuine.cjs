const crypto = require("node:crypto");

function isGenuine(secret, headers, body, now = Date.now() / 1000) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const sent = headers["webhook-timestamp"] ?? "";
  if (!/^[0-9]+$/.test(sent) || Math.abs(now - Number(sent)) > 300) return false;
  const mac = crypto.createHmac("sha256", key).update(`${headers["webhook-id"] ?? ""}.${sent}.`).update(body);
  const expected = Buffer.from("v1," + mac.digest("base64"));
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const given = Buffer.from(one);
    return given.length === expected.length && crypto.timingSafeEqual(given, expected);
  });
}

module.exports = { isGenuine };
