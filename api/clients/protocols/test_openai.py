"""OpenAI's package."""

import asyncio

import numpy as np
import openai
import pytest

works = lambda feature: pytest.mark.works("openai, OpenAI's package", feature)  # noqa: E731
refused = lambda feature: pytest.mark.refused("openai, OpenAI's package", feature)  # noqa: E731


@pytest.fixture
def client(address, seconds):
    with openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", timeout=seconds, max_retries=0) as c:
        yield c


@works("models")
def test_models(client):
    assert {"numbers", "shout", "say"} <= {m.id for m in client.models.list()}
    assert client.models.retrieve("say").id == "say"


@works("embeddings, as base64 and as floats")
def test_embeddings(client):
    texts = ["the ship sails at noon", "at noon the ships sail", "a recipe for bread"]
    coded = client.embeddings.create(model="trigrams", input=texts)  # the package asks for base64
    plain = client.embeddings.create(model="trigrams", input=texts, encoding_format="float")
    a, b = (np.array([d.embedding for d in r.data], dtype=np.float32) for r in (coded, plain))
    assert (a == b).all() and a.shape == (3, 256) and [d.index for d in coded.data] == [0, 1, 2] and coded.usage.prompt_tokens > 0
    near = a @ a.T
    assert near[0, 1] > 2 * near[0, 2], near
    assert client.embeddings.create(model="trigrams", input="one").data[0].object == "embedding"


@works("completions, whole and as a stream with usage")
def test_completions(client):
    r = client.completions.create(model="shout", prompt="hello big world", max_tokens=2)
    assert r.choices[0].text == "HELLO BIG " and r.usage.completion_tokens == 2 and r.choices[0].finish_reason == "stop", r
    chunks = list(client.completions.create(model="say", prompt="hello world", stream=True, stream_options={"include_usage": True}))
    assert [c.choices[0].text for c in chunks if c.choices and c.choices[0].text] == ["HELLO ", "WORLD "], chunks
    assert chunks[-1].usage.completion_tokens == 2


@works("chat completions, whole and as a stream")
def test_chat(client):
    messages = [{"role": "system", "content": "shout"}, {"role": "user", "content": "good morning"}]
    message = client.chat.completions.create(model="talk", messages=messages).choices[0].message
    assert message.role == "assistant" and message.content == "GOOD MORNING "
    chunks = list(client.chat.completions.create(model="talk", messages=messages, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "GOOD MORNING " and chunks[-1].choices[0].finish_reason == "stop"


@works("the async client")
def test_async(address, seconds):
    async def run():
        async with openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", timeout=seconds, max_retries=0) as c:
            answers = await asyncio.gather(*(c.completions.create(model="shout", prompt=f"n{i}") for i in range(8)))
            assert [a.choices[0].text for a in answers] == [f"N{i} " for i in range(8)]
            stream = await c.completions.create(model="shout", prompt="a b", stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream]) == "A B "

    asyncio.run(run())


@works("a client that leaves ends the generator")
def test_leave(client, name):
    with client.completions.create(model="shout", prompt=f"forever {name}", stream=True, extra_body={"slo_ms": 60_000}) as stream:
        for _, chunk in zip(range(3), stream):
            assert chunk.choices[0].text == "AGAIN "
    told = client.completions.create(model="shout", prompt=f"ended {name}", max_tokens=1, extra_body={"slo_ms": 60_000})
    assert told.choices[0].text == "ENDED "


@works("errors as exceptions of the package")
def test_errors(client):
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.completions.create(model="nobody", prompt="a")
    with pytest.raises(openai.BadRequestError, match="numbers"):
        client.embeddings.create(model="numbers", input="a")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="shout", prompt="a", extra_body={"slo_ms": -1})


@refused("n above 1")
def test_several(client):
    with pytest.raises(openai.APIStatusError, match="n"):
        client.completions.create(model="shout", prompt="a", n=2)
