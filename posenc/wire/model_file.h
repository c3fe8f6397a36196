// Reader for the files that describe a model: the message to send for a path.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "posenc/base/input_file.h"
#include "posenc/v1/rotary.pb.h"

namespace posenc {

// Returns a message with config_json or gguf set. `path` is one of
//
//   - a config.json,
//   - a GGUF, of which only the header and the frequency factors are read; the message has no tokenizer,
//   - a folder with one of these: a model's, a snapshot of the Hugging Face cache, or the cache's folder
//     models--ORGANISATION--NAME, of which refs/main selects the snapshot,
//   - with Streams::kRead, a pipe or "-", standard input, up to 16 MiB.
//
// Does not check what a config.json says. Has interruption points. Errors name the path: NOT_FOUND if there is no such
// file, INVALID_ARGUMENT for a folder without exactly one model file, what is no regular file, a config.json of more
// than 16 MiB, or a GGUF that cannot be read (the details then name the key), UNAVAILABLE if descriptors or memory are
// lacking or the file is truncated while it is read.
absl::StatusOr<v1::ModelConfig> ReadModelFile(const std::string& path, Streams streams = Streams::kRefused);

}  // namespace posenc
