// Package runtimes serves files of machine-learning libraries: an ONNX graph, an estimator, a booster, a program of
// PyTorch, a directory of MLflow or of Hugging Face. Each runtime is one Python file over the worker binding, and is
// embedded. [Recognise] says which runtime a file needs, by its content; `xebec deploy FILE` copies that runtime beside
// the file as model.py, so that what it makes is an ordinary model directory, which stays as it is when Xebec is upgraded.
//
// A runtime is a program with these arguments:
//
//	python model.py PATH [FLAG…]               serves the model; the gateway runs this
//	python model.py PATH [FLAG…] --describe    prints a [Description] as the last line of its output
//
// --describe loads the model, and evaluates a batch of zeros where the file does not say the shapes of its outputs.
//
// Several formats are pickles, or contain some: the author of the file chooses what is run when it is loaded.
// [Found.Pickle] says so, and a runtime refuses such a file without --allow-pickle. A file is recognised without a
// library and without loading it; it may be hostile, so what is read of it is bounded.
package runtimes
