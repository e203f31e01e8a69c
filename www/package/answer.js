// An answer while it is generated: an asynchronous iterator of pieces. What nobody reads is joined: at most one piece of each
// output waits, so that a reader who stops reading costs no more than the text.
import { joinPieces, pieceOf } from "./pieces.js";

// What the engine does with an answer, and no one else.
export let hear, fail, abort;

export class Answer {
  #waiting = [];
  #readers = [];
  #error = null;
  #isOver = false;
  #forget;
  #signal;
  #onAbort = () => this.#abort();

  static {
    hear = (answer, event) => answer?.#hear(event);
    fail = (answer, error) => answer?.#end(error);
    abort = (answer) => answer.#abort();
  }

  // `forget(isOver)` is called once: at the end, or where the reader leaves before it.
  constructor(forget, signal) {
    this.#forget = forget;
    this.#signal = signal;
    signal?.addEventListener("abort", this.#onAbort);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async next() {
    while (!this.#waiting.length) {
      if (this.#error) throw this.#error;
      if (this.#isOver) return { done: true, value: undefined };
      await new Promise((resolve) => this.#readers.push(resolve));
    }
    return { done: false, value: this.#waiting.shift() };
  }

  // The reader leaves, as by `break`: the answer is cancelled.
  async return(value) {
    this.#leave(null);
    return { done: true, value };
  }

  async whole() {
    const outputs = [];
    for await (const { output, ...piece } of this) {
      outputs[output] = joinPieces(outputs[output], piece);
    }
    return outputs;
  }

  #hear(event) {
    const piece = pieceOf(event);
    if (piece) {
      const place = this.#waiting.findIndex(({ output }) => output === piece.output);
      if (place < 0) this.#waiting.push(piece);
      else joinPieces(this.#waiting[place], piece);
    }
    if (event.kind === "Finished" && event.nLeft === 0) this.#end(null);
    else this.#wake();
  }

  #end(error) {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#error = error;
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#forget(true);
    this.#wake();
  }

  #abort() {
    this.#leave(this.#signal.reason);
  }

  #leave(error) {
    this.#waiting = [];
    if (this.#isOver) return;
    this.#forget(false);
    this.#end(error);
  }

  #wake() {
    this.#readers.splice(0).forEach((resolve) => resolve());
  }
}
