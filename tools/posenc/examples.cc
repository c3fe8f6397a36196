#include "tools/posenc/examples.h"

#include <utility>

namespace posenc::command {
namespace {

constexpr std::pair<const char*, const char*> kExamples[] = {
    {"posenc", R"(Examples:
  posenc explain config.json
      Prints a model's positional encoding: formula, frequencies, wavelengths, attention scaling.
  posenc compare config.json other/config.json
      Tells whether two models encode positions alike, and where they differ. Exit code 0: alike, 1: not.
  posenc rope --model config.json --layout bshd --offset 0 --q q.npy --k k.npy --q-out q2.npy --k-out k2.npy
      Rotates tensors in this process, or with --server localhost:50051 on a posenc-server.

`posenc help COMMAND` has three examples of each command.)"},
    {"posenc explain", R"(Examples:
  posenc explain config.json
      Prints a model's positional encoding. The model may also be a folder or a GGUF file.
  posenc explain --rope-type yarn --factor 4 --original-max-position-embeddings 4096 --rotary-dim 64 --input-pairing half-split
      Explains settings without a model.
  posenc explain --model config.json --json
      Prints the same as JSON, with all frequencies.)"},
    {"posenc compare", R"(Examples:
  posenc compare config.json other/config.json
      Tells whether two models encode positions alike, and where they differ.
  posenc compare config.json other/config.json --seq-len 8192
      Compares them at a sequence length, which some scalings (dynamic, longrope and others) need.
  posenc compare config.json other --json
      Prints the comparison as JSON; other is a folder that has a config.json.)"},
    {"posenc table", R"(Examples:
  posenc table --model config.json --offset 0 --count 8192 --dtype bf16 --form half-width -o table.safetensors
      Writes the cosines and sines of 8192 positions, each rounded once from its exact value.
  posenc table --model config.json --positions 0,1,8191 --dtype fp32 --form duplicated --json
      Prints the rows of three positions.
  posenc table --model config.json --offset 0 --count 16 --dtype fp32 --form half-width --precision model -o table.npy
      Writes table.cos.npy and table.sin.npy with the roundings of the model's own code.)"},
    {"posenc rope", R"(Examples:
  posenc rope --model config.json --offset 0 --q q.npy --k k.npy --q-out q2.npy --k-out k2.npy
      Rotates q and k, whose first token is at position 0.
  posenc rope --model config.json --layout bshd --positions 0,1,8191,131071 --q q.npy --q-out rotated.safetensors
      Rotates tokens at given positions.
  posenc rope --model config.json --layout bshd --offset 0 --q q.npy --q-out q2.npy --server localhost:50051
      Rotates on a posenc-server.)"},
    {"posenc bias", R"(Examples:
  posenc bias --num-heads 8 --slopes power-of-two --alibi-form causal --query-length 64 --key-length 64 --dtype fp16 -o alibi.npy
      Writes ALiBi's bias, [heads, queries, keys].
  posenc bias --t5-bidirectional true --query-length 9 --key-length 9 --bias-form index -o buckets.npy
      Writes the bucket of T5's table for each query and key.
  posenc bias --nope --query-length 4 --key-length 4 --causal -o mask.npy
      Writes a causal mask.)"},
    {"posenc scores", R"(Examples:
  posenc scores --shaw-table shaw.npy --shaw-order key-minus-query --shaw-clip true --shaw-key-term --q heads.npy --k heads.npy --content false --layout bshd --dtype fp32 -o scores.npy
      Writes Shaw's term of the scores.
  posenc scores --wpr-wavelet ricker --wpr-scales 4 --wpr-channels shift-fastest --wpr-distance query-minus-key --q heads.npy --k heads.npy --content true --layout bshd --dtype fp32 -o scores.npy
      Writes the scores of wavelet-based relative positions, q . k included.
  posenc scores --shaw-table shaw.npy --shaw-order key-minus-query --shaw-clip true --shaw-key-term --q heads.npy --k heads.npy --content true --layout bshd --dtype fp32 --causal --fill -inf --fully-masked-row zeros -o scores.npy
      Writes causal scores, q . k included.)"},
    {"posenc values", R"(Examples:
  posenc values --shaw-table shaw.npy --shaw-order key-minus-query --shaw-clip true --probabilities probabilities.npy --layout bshd --dtype fp32 -o values.npy
      Writes Shaw's term of the attention's output.
  posenc values --shaw-table shaw.npy --shaw-order key-minus-query --shaw-clip true --probabilities probabilities.npy --layout bhsd --dtype bf16 -o values.safetensors
      Writes it with the heads before the tokens.
  posenc values --shaw-table shaw.npy --shaw-order key-minus-query --shaw-clip true --probabilities probabilities.npy --layout bshd --add-to heads.npy -o values.npy
      Adds it to a tensor, such as the product of probabilities and v.)"},
    {"posenc embedding", R"(Examples:
  posenc embedding --convention interleaved --dim 64 --offset 0 --count 128 --dtype fp32 -o sinusoidal.npy
      Writes a sinusoidal encoding, [count, dim].
  posenc embedding --timestep-dim 256 --positions 0.5,17 --dtype fp32 -o timestep.npy
      Writes the embedding of two timesteps of a diffusion model.
  posenc embedding --learned-table positions.npy --resize-mode bicubic --resize-target 4,6 --dtype fp32 -o rows.npy
      Writes a learned table, resized to an image of 4 x 6 patches.)"},
    {"posenc positions", R"(Examples:
  posenc positions --length 8 --attention-mask 0*3,1*5
      Prints the positions of five tokens after three of padding.
  posenc positions --model config.json --length 1 --cache-length 8191
      Prints the position of the next token after 8191 in the cache.
  posenc positions --mm-token-type-ids 0*6 --cu-seqlens 0,2,6 -o ids.npy
      Writes the ids of two packed sequences.)"},
    {"posenc plot", R"(Examples:
  posenc plot frequencies --model config.json -o frequencies.png
      Draws the wavelength of each pair, scaled and unscaled.
  posenc plot decay --model config.json -o decay.svg
      Draws how fast a score can fall with the distance.
  posenc plot table --model config.json --json
      Prints the numbers of a picture instead.)"},
    {"posenc plot decay", R"(Examples:
  posenc plot decay --model config.json -o decay.svg
      Draws the bound of a score and the score of equal tokens over their distance.
  posenc plot decay --model config.json --max-distance 8192 --log-x -o decay.png
      Draws them up to a distance of 8192 tokens, on a logarithmic axis.
  posenc plot decay --model config.json --overlay other -o both.svg
      Draws two models in one picture; other is a folder that has a config.json.)"},
    {"posenc plot table", R"(Examples:
  posenc plot table --model config.json -o table.png
      Draws the cosines and sines of the first 128 positions.
  posenc plot table --model config.json --offset 8000 --count 64 -o table.svg
      Draws those of 64 positions from 8000 on.
  posenc plot table --convention interleaved --dim 64 -o sinusoidal.png
      Draws a sinusoidal encoding.)"},
    {"posenc plot bias", R"(Examples:
  posenc plot bias --num-heads 8 --slopes power-of-two --alibi-form causal --causal --query-length 64 --key-length 64 -o alibi.png
      Draws ALiBi's bias, one panel per head.
  posenc plot bias --t5-bidirectional true --index --query-length 64 --key-length 64 -o buckets.svg
      Draws the bucket of T5's table for each query and key.
  posenc plot bias --nope --causal --window-left 8 --query-length 32 --key-length 32 -o mask.png
      Draws a mask: a causal window of 8 tokens.)"},
    {"posenc plot frequencies", R"(Examples:
  posenc plot frequencies --model config.json -o frequencies.png
      Draws the wavelength of each pair, scaled and unscaled, and the trained length.
  posenc plot frequencies --model config.json --overlay other -o both.svg
      Draws two models in one picture; other is a folder that has a config.json.
  posenc plot frequencies --model config.json --json
      Prints the numbers instead.)"},
    {"posenc plot similarity", R"(Examples:
  posenc plot similarity --model config.json -o similarity.svg
      Draws the similarity of two positions over their distance.
  posenc plot similarity --convention interleaved --dim 128 --max-distance 64 -o sinusoidal.png
      Draws that of a sinusoidal encoding.
  posenc plot similarity --model config.json --grid 16x16 -o patches.png
      Draws the similarity of an image's middle patch to the others.)"},
    {"posenc plot wavelets", R"(Examples:
  posenc plot wavelets --wavelet ricker -o ricker.svg
      Draws the wavelets of four scales.
  posenc plot wavelets --wavelet morlet --morlet-frequency 5 --max-distance 32 -o morlet.png
      Draws Morlet's wavelets up to a distance of 32 tokens.
  posenc plot wavelets --wavelet haar --scales 2 --json
      Prints the numbers instead.)"},
    {"posenc diagnose", R"(Examples:
  posenc diagnose --model config.json --before q.npy --after q_rotated.npy
      Finds the rotation that another system applied, and how it differs from the model's.
  posenc diagnose --model other --before q.npy --after q_rotated.npy --layout bshd
      Compares with another model, a folder that has a config.json, and says the layout.
  posenc diagnose --model config.json --before q.npy --after q_rotated.npy --offset 0 --json
      Prints the verdict and its explanations as JSON.)"},
    {"posenc diagnose-bias", R"(Examples:
  posenc diagnose-bias bias.npy
      Finds the method and the mask of an attention bias.
  posenc diagnose-bias bias.npy --num-heads 4 --slopes power-of-two --alibi-form causal
      Tells whether it is the expected one.
  posenc diagnose-bias bias.npy --json
      Prints the verdict and its explanations as JSON.)"},
    {"posenc diagnose-table", R"(Examples:
  posenc diagnose-table resized.npy --learned-table positions.npy
      Finds how a learned table of positions was resized.
  posenc diagnose-table resized.npy --learned-table positions.npy --resize-target 4,6 --tolerance 8
      Tells the grid, which the shape may not tell, and what counts as rounding.
  posenc diagnose-table resized.npy --learned-table positions.npy --json
      Prints all ways that fit as JSON.)"},
    {"posenc vectors", R"(Examples:
  posenc vectors --model config.json -o vectors.safetensors
      Writes inputs, positions, tables and rotated tensors, for another test suite.
  posenc vectors --model config.json --seed 7 -o vectors.safetensors
      Writes those of other random inputs.
  posenc vectors --rope-type default --rotary-dim 64 --input-pairing interleaved -o vectors.safetensors
      Writes those of settings without a model.)"},
    {"posenc load", R"(Examples:
  posenc load --server localhost:50051 --rate 100 --duration 1s
      Reports the latency at 100 calls per second.
  posenc load --server localhost:50051 --concurrency 4 --duration 1s
      Reports the throughput of four callers, each of which waits for its answer.
  posenc load --server localhost:50051 --rate 100 --duration 1s --json
      Prints the report as JSON.)"},
    {"posenc load merge", R"(Examples:
  posenc load merge one.json two.json
      Prints one report of two clients that ran at the same time.
  posenc load merge one.json two.json --html report.html
      Also writes it as a page with charts.
  posenc load merge one.json - -o both.json <two.json
      Reads the second results from standard input, and writes the sum.)"},
    {"posenc info", R"(Examples:
  posenc info
      Prints version, methods and limits of this program.
  posenc info --server localhost:50051
      Prints those of a server, with its devices and counters.
  posenc info --json
      Prints them as JSON.)"},
    {"posenc health", R"(Examples:
  posenc health --server localhost:50051
      Exits with 0 if the server is serving, with 1 if it is not, and with 3 if none answers.
  posenc health --server localhost:50051 --timeout 2
      Waits for at most two seconds.
  posenc health --server localhost:50051 --json
      Prints the status as JSON.)"},
    {"posenc serve", R"(Examples:
  posenc serve --listen localhost:50051
      Serves this machine.
  posenc serve --help
      Prints the server's flags.
  posenc serve --version
      Prints the server's version.)"},
    {"posenc demo", R"(Examples:
  posenc demo
      Explains a model, rotates, compares and measures, and checks the answers.
  posenc demo --picture wavelengths.svg
      Also draws the wavelengths of the model's pairs.
  posenc demo --json
      Prints the verdict as JSON.)"},
    {"posenc help", R"(Examples:
  posenc help rope
      Prints the help of a command.
  posenc help plot decay
      Prints the help of a command of a command.
  posenc help --man-pages .
      Writes the man pages.)"},
    {"posenc version", R"(Examples:
  posenc version
      Prints the version of this program.
  posenc version --json
      Prints it as JSON.
  posenc info --server localhost:50051
      Prints the version of a server.)"},
    {"posenc completion", R"(Examples:
  posenc completion bash
      Prints the script; `source <(posenc completion bash)` uses it in this shell. The Debian package installs it.
  posenc completion zsh
      For zsh: `source <(posenc completion zsh)`.
  posenc completion fish
      For fish: `posenc completion fish | source`.)"},
};

}  // namespace

std::string ExamplesOf(const std::string& command) {
  for (const auto& [name, examples] : kExamples) {
    if (command == name) return examples;
  }
  return "";
}

}  // namespace posenc::command
