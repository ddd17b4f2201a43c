"""Reads orders, a JSON object on each line, carries them out side by side, and prints the answers."""

import json
import sys
import threading

output = threading.Lock()


def serve(carry_out):
    """Serves until the input ends. An exception of carry_out is the answer."""

    def answer(request):
        try:
            result = carry_out(request)
        except Exception as error:
            result = {"error": repr(error)}
        with output:
            print(json.dumps({"id": request["id"], **result}), flush=True)

    for line in sys.stdin:
        threading.Thread(target=answer, args=[json.loads(line)], daemon=True).start()
