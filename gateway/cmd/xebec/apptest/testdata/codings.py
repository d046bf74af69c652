"""Content codings as the clients of others use them: codings.py FUNCTION_PORT ADMIN_PORT

aiohttp compresses requests and decodes answers by itself, brotli is done by hand, tritonclient compresses in both directions.
The answers must be those to requests that are not compressed.
"""

import asyncio
import json
import sys

import aiohttp
import brotli
import numpy
import tritonclient.http as http

functions, admin = sys.argv[1:]
text = b"one two three " * 2000


def without_id(answer):
    return {name: value for name, value in json.loads(answer).items() if name != "query_id"}


async def native():
    url, kind = f"http://{functions}/f/predict", {"Content-Type": "text/plain"}
    async with aiohttp.ClientSession() as session:

        async def post(body, headers=None, **more):
            async with session.post(url, data=body, headers=kind | (headers or {}), **more) as answer:
                assert answer.status == 200, (answer.status, await answer.read())
                return answer.headers.get("Content-Encoding"), without_id(await answer.read())

        _, plain = await post(text, {"Accept-Encoding": "identity"})
        assert len(plain["output"]["b64"]) > 1024, plain
        for coding in ("gzip", "deflate"):
            encoding, answer = await post(text, compress=coding)
            assert answer == plain, (coding, answer)
            assert encoding == "gzip", encoding  # of what aiohttp accepts
        _, answer = await post(brotli.compress(text), {"Content-Encoding": "br"})
        assert answer == plain, answer
        async with session.get(f"http://{admin}/metrics") as answer:
            assert answer.headers["Content-Encoding"] == "gzip" and "xebec_" in await answer.text()
        async with session.head(f"http://{functions}/readyz") as answer:
            assert answer.status == 200 and await answer.read() == b""


def protocol():
    client = http.InferenceServerClient(functions)

    def infer(**more):
        tensor = http.InferInput("input", [2], "BYTES")
        tensor.set_data_from_numpy(numpy.array([text, b"b"], dtype=object))
        result = client.infer("m", [tensor], outputs=[http.InferRequestedOutput("output", binary_data=True)], **more)
        return [bytes(v) for v in result.as_numpy("output")]

    plain = infer()
    for coding in ("gzip", "deflate"):
        answer = infer(request_compression_algorithm=coding, response_compression_algorithm=coding)
        assert answer == plain, (coding, answer)
    client.close()


asyncio.run(native())
protocol()
