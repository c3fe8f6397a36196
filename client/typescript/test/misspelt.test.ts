// A misspelt field, case or value must neither compile nor be ignored. `tsc` fails if a line below "@ts-expect-error"
// compiles.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ApplyRotaryRequestSchema, connect, Direction, Layout, message, type Client } from "../src/index.js";

// Compiled, never called.
export function misspelt(client: Client): unknown[] {
  return [
    // @ts-expect-error
    client.applyRotary({ direktion: Direction.INVERSE }),
    // @ts-expect-error
    client.applyRotary({ direction: "INVERSE" }),
    // @ts-expect-error
    client.applyRotary({ direction: Direction.INVERS }),
    // @ts-expect-error
    client.applyRotary({ layout: Direction.INVERSE }),
    // @ts-expect-error
    client.applyRotary({ rotary: { source: { case: "settings", value: { rotaryDimm: 128n } } } }),
    // @ts-expect-error
    client.applyRotary({ rotary: { source: { case: "setting", value: {} } } }),
    client.applyRotary({
      rotary: {
        source: {
          case: "settings",
          // @ts-expect-error
          value: { frequencies: { case: "ropeParameters", value: { rope_type: "default" } } },
        },
      },
    }),
    // @ts-expect-error
    client.applyRotary({ positions: { source: { case: "offset", value: "far" } } }),
    // @ts-expect-error
    client.applyRotation({}),
  ];
}

// These requests have no types, as in JavaScript.
const wrong: [request: unknown, error: RegExp][] = [
  [{ direktion: 3 }, /ApplyRotaryRequest\.direktion does not exist; .* has: .*direction/],
  [{ direction: "INVERSE" }, /direction is "INVERSE", must be one of .*Direction\.INVERSE/],
  [{ direction: 17 }, /direction is 17, must be one of/],
  [{ rotary: { model: {} } }, /rotary\.model does not exist; posenc\.v1\.RotarySource has: source/],
  [{ rotary: { source: { case: "setting", value: {} } } }, /source\.case is "setting", must be one of model, settings/],
  [
    { rotary: { source: { case: "settings", value: { rotaryDimm: 128n } } } },
    /source\.value\.rotaryDimm does not exist/,
  ],
  [{ q: { tensor: { dtype: "FP32" } } }, /q\.tensor\.dtype is "FP32", must be one of .*DataType\.FP32/],
  [
    { positions: { source: { case: "segments", value: { segment: [{}, { kind: { case: "lines" } }] } } } },
    /segment\[1\]\.kind\.case/,
  ],
  [{ q: 3 }, /q is 3, must be an object/],
];

test("an untyped misspelling throws before anything is sent", async () => {
  const client = connect("localhost:1");
  for (const [request, error] of wrong) {
    assert.throws(() => message(ApplyRotaryRequestSchema, request as object), error);
    await assert.rejects(client.applyRotary(request as object), error);
  }
  client.close();
});

test("a right request is not refused", () => {
  const request = message(ApplyRotaryRequestSchema, {
    direction: Direction.INVERSE,
    layout: Layout.THD,
    positions: { source: { case: undefined } },
  });
  assert.equal(message(ApplyRotaryRequestSchema, request).direction, Direction.INVERSE);
});
