"""Prints the ends of jobs as they are told: WEBHOOK_SECRET=whsec_... python examples/webhook_receiver.py 9000."""

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from tidegate.client import InvalidWebhook, verify


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = verify(body, dict(self.headers), os.environ["WEBHOOK_SECRET"])
        except InvalidWebhook:
            self.send_error(400)
            return
        self.send_response(204)
        self.end_headers()
        print(self.headers["webhook-id"], event["type"], event["data"]["id"], flush=True)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
