import hashlib, hmac, http.server, os, urllib.parse

SECRET = os.environ["APP_SECRET"].encode()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        is_mine = query.get("hub.verify_token") == ["mine"]
        self.send_response(200 if is_mine else 403)
        self.end_headers()
        self.wfile.write(query["hub.challenge"][0].encode() if is_mine else b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        made = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        is_genuine = hmac.compare_digest(made, self.headers.get("X-Hub-Signature-256", ""))
        print("signed" if is_genuine else "FORGED", body.decode(), flush=True)
        self.send_response(200 if is_genuine else 401)
        self.end_headers()


http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Receiver).serve_forever()
