"""A server whose answers the tests choose."""

import http.server
import json
import threading


class Fake:
    """Answers with the given (status, headers, body) one after the other, and keeps what was asked. None closes the connection."""

    def __init__(self, *answers):
        self.answers, self.asked, lock = list(answers), [], threading.Lock()
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with lock:
                    fake.asked.append((self.path, dict(self.headers), body))
                    answer = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, content = answer
                content = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", "Content-Length": len(content), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = int(headers.get("Content-Length", len(content))) != len(content)  # the rest never comes

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def prediction(output):
    return 200, {}, {"query_id": 1, "output": output, "default": False, "confidence": 1, "models": ["m@1"]}


def error(status, code, **headers):
    return status, headers, {"error": "Query processing error", "cause": "why", "code": code, "request_id": "r1"}
