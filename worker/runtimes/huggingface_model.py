"""Serves a directory that Transformers or Sentence Transformers have saved.

    python model.py model               serves it; the gateway runs this
    python model.py model --describe    prints its inputs and outputs as JSON; `xebec deploy DIRECTORY` runs this

What it does follows from the architecture in config.json: embeddings of texts, classes of texts or of images, or texts
for texts. Code that the directory brings along is not run, and nothing is downloaded. Weights are safetensors; a .bin is
a pickle, and needs --allow-pickle.
"""

import argparse
import io
import json
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def missing(e, *requirements):
    """Ends the program: a library is not there. `xebec deploy` reads the requirements."""
    if "--describe" in sys.argv:
        print(json.dumps({"missing": e.name, "requirements": requirements}))
        sys.exit()
    sys.exit(f"{e}: {sys.executable} needs {' and '.join(requirements)}. Install them there, or name them in requirements.txt beside the model")


try:
    import numpy as np
    import torch
    import transformers
except ImportError as e:
    missing(e, "transformers", "torch", "numpy")

TEXT = [{"name": "input", "dtype": "string", "shape": []}]
LABEL = [{"name": "output", "dtype": "string", "shape": []}]
TASKS = {
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForCausalLM": "text-generation",
    "LMHeadModel": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
}
NEW_TOKENS = 64  # of a text that is generated


def read(path, default=None):
    return json.loads(path.read_text()) if path.is_file() else default


class Embedder:
    """Embeddings of texts: the states of the last layer, pooled as the directory says. Without such a word it is their mean."""

    def __init__(self, path, **loading):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        self.model = transformers.AutoModel.from_pretrained(path, **loading).eval()
        modules = [m.get("type", "").rsplit(".", 1)[-1] for m in read(path / "modules.json", [])]
        unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
        if unknown:
            sys.exit(f"{path}: has a module {', '.join(unknown)}, which this runtime does not know: write a model.py that loads it with sentence_transformers")
        pooling = read(path / "1_Pooling" / "config.json", {})
        modes = [name for name, on in pooling.items() if name.startswith("pooling_mode_") and on is True] or ["pooling_mode_mean_tokens"]
        if modes not in (["pooling_mode_mean_tokens"], ["pooling_mode_cls_token"]):
            sys.exit(f"{path}: pools by {', '.join(modes)}: this runtime knows pooling_mode_mean_tokens and pooling_mode_cls_token")
        self.first, self.normalize = modes == ["pooling_mode_cls_token"], "Normalize" in modules
        longest = read(path / "sentence_bert_config.json", {}).get("max_seq_length") or self.tokenizer.model_max_length
        self.longest = min(longest, getattr(self.model.config, "max_position_embeddings", longest))

    def describe(self):
        return {"inputs": TEXT, "outputs": [{"name": "output", "dtype": "float32", "shape": [self.model.config.hidden_size]}], "notes": ["it embeds texts"]}

    def predict(self, texts):
        with torch.inference_mode():
            tokens = self.tokenizer(texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
            states = self.model(**tokens).last_hidden_state.float()
            if self.first:
                pooled = states[:, 0]
            else:
                mask = tokens["attention_mask"].unsqueeze(-1).float()
                pooled = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            if self.normalize:
                pooled = torch.nn.functional.normalize(pooled, p=2, dim=1)
        return pooled.numpy()


class Pipeline:
    """A pipeline of Transformers. The label of a class comes with its probability as confidence."""

    def __init__(self, path, task, **loading):
        self.task = task
        automatic = {
            "text-classification": transformers.AutoModelForSequenceClassification,
            "image-classification": transformers.AutoModelForImageClassification,
            "text-generation": transformers.AutoModelForCausalLM,
            "text2text-generation": transformers.AutoModelForSeq2SeqLM,
        }[task]
        self.model = automatic.from_pretrained(path, **loading).eval()
        if task == "image-classification":
            try:
                from PIL import Image
            except ImportError as e:
                missing(e, "transformers", "torch", "numpy", "pillow")
            self.open = Image.open
            self.processor = transformers.AutoImageProcessor.from_pretrained(path, local_files_only=True, use_fast=False)
        else:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            self.tokenizer.padding_side = "left" if task == "text-generation" else "right"
            if self.tokenizer.pad_token is None:
                self.tokenizer.pad_token = self.tokenizer.eos_token

    def describe(self):
        inputs = [{"name": "input", "dtype": "bytes", "shape": [], "media": "image/*"}] if self.task == "image-classification" else TEXT
        return {"inputs": inputs, "outputs": LABEL, "notes": [f"it is a pipeline for {self.task}"]}

    def predict(self, batch):
        with torch.inference_mode():
            if self.task == "image-classification":
                pictures = [self.picture(data) for data in batch]
                return self.classes(self.model(**self.processor(images=pictures, return_tensors="pt")).logits)
            tokens = self.tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            if self.task == "text-classification":
                return self.classes(self.model(**tokens).logits)
            ids = self.model.generate(**tokens, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=self.tokenizer.pad_token_id)
            if self.task == "text-generation":
                ids = ids[:, tokens["input_ids"].shape[1] :]
            return self.tokenizer.batch_decode(ids, skip_special_tokens=True), [None] * len(batch)

    def picture(self, data):
        try:
            return self.open(io.BytesIO(data)).convert("RGB")
        except Exception as e:  # of many kinds: the decoder's, or struct.error
            import xebec

            raise xebec.Error(f"not a picture: {e}") from e

    def classes(self, logits):
        scores = logits.float().softmax(-1) if logits.shape[-1] > 1 else logits.float().sigmoid()
        best = scores.max(-1)
        labels = self.model.config.id2label
        return [labels[int(i)] for i in best.indices], best.values.numpy().astype(np.float64)


def load(path, pickle):
    config = read(path / "config.json", {})
    if "auto_map" in config and not config.get("model_type"):
        sys.exit(f"{path}: is a model whose code is in the directory, and such code is not run: write a model.py that loads it")
    loading = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": not pickle}
    for architecture in config.get("architectures") or []:
        for ending, task in TASKS.items():
            if architecture.endswith(ending):
                return Pipeline(path, task, **loading)
        if "For" in architecture and not architecture.endswith(("ForMaskedLM", "ForPreTraining")) and not (path / "modules.json").is_file():
            sys.exit(f"{path}: is a {architecture}, which this runtime does not know: expected one that ends in {', '.join(TASKS)}, or one of embeddings; write a model.py that loads it")
    return Embedder(path, **loading)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--allow-pickle", action="store_true")
    parser.add_argument("--describe", action="store_true")
    arguments = parser.parse_args()
    served = load(Path(arguments.model), arguments.allow_pickle)
    if arguments.describe:
        print(json.dumps(served.describe()))
    else:
        import xebec

        pictures = getattr(served, "task", "") == "image-classification"
        xebec.serve(served.predict, text=not pictures, confidences=isinstance(served, Pipeline))
