// Rotates a query by the RoPE of a model, on a posenc-server: rotate ADDRESS CONFIG_JSON
import { readFileSync } from "node:fs";
import { connect, Layout, PosencError, tensor, values } from "posenc";

const [address, config] = process.argv.slice(2);
if (!address || !config) throw new Error("usage: rotate ADDRESS CONFIG_JSON");
const q = new Float32Array(3 * 32 * 128).fill(1); // one sequence, three tokens, 32 heads of 128 elements

const client = connect(address);
try {
  const answer = await client.applyRotary({
    rotary: { source: { case: "model", value: { configJson: readFileSync(config) } } },
    positions: { source: { case: "offset", value: 100_000n } },
    layout: Layout.BSHD,
    q: { tensor: tensor(q, [1, 3, 32, 128]) },
  });
  console.log(values(answer.q, Float32Array).subarray(0, 4).join(" "));
} catch (error) {
  if (!(error instanceof PosencError) || !error.field) throw error;
  console.error(`field ${error.field} is ${error.value}: ${error.limit}`);
  process.exitCode = 1;
} finally {
  client.close();
}
