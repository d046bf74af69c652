// Package openai is the shape of OpenAI's API for models that declare a task: POST /v1/embeddings for `task: embed`, /v1/completions for `task: generate`
// and /v1/chat/completions for `task: chat`. The `model` of a request is a function, a model, or name@version. The list of models, GET /v1/models, belongs to
// several protocols and is package catalog's.
//
// A request has one input or a list of them; each is a query. A conversation is one query, whose input is the JSON of the messages as they were
// sent: how a prompt is made of them is the model's to know. Members that are not the protocol's envelope (temperature, max_tokens, stop, …) are parameters of
// the query, which a model can take; `n` above 1 and tokens instead of text are refused by name.
//
// With "stream": true the answer is server-sent events, an output of the model each, then the reason for the end, the usage if it was asked for, and
// [DONE]. A model that answers at once streams one piece. A client that leaves ends the generator. A stream that breaks off says so in an event.
//
// Usage counts what can be known without a tokenizer: of prompts their words, of completions the outputs of a stream, or the words of a text.
//
// Where to read next: request.go is the parser, dialect.go has the routes, answer.go and stream.go the answers.
package openai
