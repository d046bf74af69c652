"""What is sent again, and what is not: against a server whose answers the tests choose."""

import asyncio
import inspect

import pytest
from fake import Fake, error, prediction

import xebec_client
from xebec_client import AsyncClient, Client, Retry


@pytest.fixture(params=["threads", "asyncio"])
def connect(request):
    """Makes a client whose pauses are noted instead of waited for. That of asyncio is driven from here."""
    closers = []

    def make(url, **options):
        pauses = []
        if request.param == "threads":
            client = Client(url, **options)
            client._sleep = pauses.append
            closers.append(client.close)
            return client, pauses
        loop = asyncio.new_event_loop()
        client = AsyncClient(url, **options)

        async def sleep(seconds):
            pauses.append(seconds)

        client._sleep = sleep

        class Driven:
            def __getattr__(self, name):
                return lambda *a, **k: loop.run_until_complete(getattr(client, name)(*a, **k))

        closers.extend([lambda: loop.run_until_complete(client.aclose()), loop.close])
        return Driven(), pauses

    yield make
    for close in closers:
        close()


def test_overloaded_is_tried_again_after_retry_after(connect):
    with Fake(error(503, "overloaded", **{"Retry-After": "1"}), prediction(7)) as fake:
        client, pauses = connect(fake.url)
        assert client.predict("f", 1).output == 7
        assert len(pauses) == 1 and 1 <= pauses[0] <= 1.05


def test_a_broken_connection_is_tried_again(connect):
    with Fake(None, prediction(7)) as fake:
        client, pauses = connect(fake.url)
        assert client.predict("f", 1).output == 7 and len(pauses) == 1


@pytest.mark.parametrize(
    "status, code, kind",
    [
        (400, "invalid_argument", xebec_client.InvalidRequest),
        (404, "not_found", xebec_client.NotFound),
        (403, "forbidden", xebec_client.Forbidden),
        (502, "model_error", xebec_client.ModelFailed),
        (503, "low_confidence", xebec_client.Unavailable),
        (504, "deadline_exceeded", xebec_client.DeadlineExceeded),
        (500, "internal", xebec_client.Error),
    ],
)
def test_other_errors_are_not(connect, status, code, kind):
    with Fake(error(status, code)) as fake:
        client, pauses = connect(fake.url)
        with pytest.raises(kind) as caught:
            client.predict("f", 1)
        e = caught.value
        assert (e.code, e.status, e.request_id, e.message, str(e)) == (code, status, "r1", "why", f"{code}: why (request r1)")
        assert not pauses and len(fake.asked) == 1


def test_feedback_by_input_is_not_sent_twice(connect):
    """It may have been counted before the connection broke off."""
    counted = (200, {}, {"status": "counted"})
    with Fake(None, counted) as fake:
        client, _ = connect(fake.url)
        with pytest.raises(xebec_client.ConnectionFailed):
            client.feedback("f", {"input": 1}, label=2)
        assert len(fake.asked) == 1
    with Fake(None, counted) as fake:
        client, _ = connect(fake.url)
        assert client.feedback("f", 42, label=2).status == "counted"
        assert len(fake.asked) == 2


def test_attempts_are_bounded(connect):
    with Fake(error(503, "overloaded")) as fake:
        client, pauses = connect(fake.url, retry=Retry(attempts=4, base=1, cap=2))
        with pytest.raises(xebec_client.Unavailable):
            client.predict("f", 1)
        assert len(fake.asked) == 4 and all(p <= limit for p, limit in zip(pauses, (1, 2, 2), strict=True))


def test_no_attempt_after_the_objective(connect):
    with Fake(error(503, "overloaded", **{"Retry-After": "60"})) as fake:
        client, pauses = connect(fake.url)
        with pytest.raises(xebec_client.Unavailable):
            client.predict("f", 1, slo_ms=50_000)
        assert not pauses and len(fake.asked) == 1
        assert 0 < float(fake.asked[0][1]["Xebec-Slo-Ms"]) <= 50_000


def test_the_budget_ends_retries(connect):
    """A gateway that is down gets few requests more than its callers send."""
    with Fake(error(503, "overloaded")) as fake:
        client, _ = connect(fake.url)
        for _ in range(50):
            with pytest.raises(xebec_client.Unavailable):
                client.predict("f", 1)
        assert 50 < len(fake.asked) < 60
        fake.answers = [prediction(1)]
        for _ in range(100):
            client.predict("f", 1)
        fake.answers, before = [error(503, "overloaded"), prediction(2)], len(fake.asked)
        assert client.predict("f", 1).output == 2 and len(fake.asked) == before + 2


def test_an_answer_of_a_proxy(connect):
    with Fake((502, {"Content-Type": "text/html"}, b"<html>bad gateway")) as fake:
        client, _ = connect(fake.url)
        with pytest.raises(xebec_client.ModelFailed, match="no error of a gateway") as caught:
            client.predict("f", 1)
        assert caught.value.code == "bad_gateway"


def test_no_connection(connect):
    with Fake(prediction(1)) as fake:
        url = fake.url
    client, pauses = connect(url)
    with pytest.raises(xebec_client.ConnectionFailed) as caught:
        client.feedback("f", {"input": 1}, label=2)  # it was not sent, so it may be sent again
    assert caught.value.code == "not_connected" and len(pauses) == 2


def test_a_stream_that_stops_is_broken():
    line = b'{"output":"w0"}\n'
    with Fake((200, {"Content-Type": "application/jsonl", "Xebec-Query-Id": "5"}, line)) as fake, Client(fake.url) as client:
        stream = client.stream("f", "1")
        assert stream.query_id == 5
        outputs = iter(stream)
        assert next(outputs) == "w0"
        with pytest.raises(xebec_client.StreamBroken):
            next(outputs)
    with Fake((200, {"Content-Type": "application/jsonl", "Content-Length": "100"}, line)) as fake, Client(fake.url) as client:
        with pytest.raises(xebec_client.StreamBroken):
            list(client.stream("f", "1"))


def test_names_and_addresses():
    with Client("localhost:1") as client:
        assert str(client._http.base_url) == "http://localhost:1"
        for name in ("", "a/b", "a b", "ü", "..", "a?b"):
            with pytest.raises(ValueError, match="function"):
                client.predict(name, 1)


def test_both_clients_say_the_same():
    """A method that one of them has, the other has too, with the same parameters."""
    methods = [
        {n: str(inspect.signature(m).parameters) for n, m in vars(c).items() if inspect.isfunction(m) and n[0] != "_"}
        for c in (Client, AsyncClient)
    ]
    methods[1]["close"] = methods[1].pop("aclose")
    assert methods[0] == methods[1]
