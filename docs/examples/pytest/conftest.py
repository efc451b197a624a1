import http.server, json, os, queue, subprocess, threading
import httpx, pytest


@pytest.fixture(scope="session")
def tidings(tmp_path_factory):
    class Webhook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

    webhook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
    received, url = queue.Queue(), f"http://127.0.0.1:{webhook.server_port}/"
    threading.Thread(target=webhook.serve_forever, daemon=True).start()
    parts = ["API", "NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS"]
    env = os.environ | {f"TIDINGS_{part}_ADDRESS": "127.0.0.1:0" for part in parts}
    env |= {"TIDINGS_DATA_DIR": str(tmp_path_factory.mktemp("tidings")), "TIDINGS_ROBOTS_PER_KIND": "1"}
    with subprocess.Popen(["tidings", "up"], env=env, stdout=subprocess.PIPE, text=True) as process:
        api = httpx.Client(base_url=next(line.split()[1] for line in process.stdout if line.startswith("  API ")))
        login = api.post("/v1/users/login", auth=("admin", "secret"), json={"new_password": "Tidings-2026!"})
        api.headers["Authorization"] = f"Bearer {login.json()['users'][0]['token']}"
        api.patch("/v1/settings/application", json={"webhooks": {"url": url}, "sent_status": True})
        yield api, lambda: received.get(timeout=30)
        process.terminate()
