// Pieces of an answer: what an event adds to it, and two as one.

// The piece that an event adds, if it adds any.
export const pieceOf = ({ kind, output = 0, ...data }) => {
  const piece = { output, text: "", ids: [] };
  switch (kind) {
    case "Tokens":
      return { ...piece, text: data.text, ids: data.ids, ...(data.logprobs.length && { logprobs: data.logprobs }) };
    case "PromptLogprobs":
      return { ...piece, promptLogprobs: data.tokens };
    case "OpTimes":
      return { ...piece, opTimes: { position: data.position, ops: data.ops } };
    case "Finished":
      return { ...piece, reason: data.reason, usage: data.usage };
    default:
      return null;
  }
};

// Adds what came later of the same output to `piece`.
export const joinPieces = (piece, { text, ids, logprobs, ...rest }) => {
  if (!piece) return { text, ids: [...ids], ...(logprobs && { logprobs: [...logprobs] }), ...rest };
  piece.text += text;
  ids.forEach((id) => piece.ids.push(id));
  if (logprobs) piece.logprobs = [...(piece.logprobs ?? []), ...logprobs];
  return Object.assign(piece, rest);
};
