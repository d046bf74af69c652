// Package foreground runs the replica of a model in front of its author: as a child of this program, with its terminal, so that prints
// appear at once and a debugger can read from stdin.
//
// It is for the commands that authors use while they write a model. It keeps the replica apart from nothing, limits nothing, and runs one
// replica at a time.
//
// # What it promises
//
// A replica that ends by itself is not started again on its own, because its author is reading what it has said: for the supervisor it runs on
// until Restart, which ends it if necessary and lets the supervisor start the next one at once. With [Config.Once] it ends as any other.
//
// A launch runs in the environment that [Config.Python] returns. If it cannot be built, the author is told, and it is tried again after Restart.
//
// Python models are forked from a process that has imported the libraries of the script ("python -m xebec._dev", see its docstring for
// the messages), so that a restart costs milliseconds. If that process cannot be had, the model is started as it is.
package foreground
