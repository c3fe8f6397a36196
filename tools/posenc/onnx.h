// ONNX graphs as arguments: what their operators rotate by (posenc/wire/onnx_file.h), and whether as a model does.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/onnx_file.h"
#include "tools/posenc/session.h"

namespace posenc::command {

// Returns the rotary embedding of the graph, as its table: of the operator with the node `node`, or, if that is empty,
// the one that all operators have. A usage error lists the choices.
absl::StatusOr<v1::RotarySettings> RotaryOfOnnx(const std::string& path, const std::string& node);

// Prints each rotary embedding of the graph.
absl::Status ExplainOnnx(const std::string& path, Session& session);

// One side of a comparison: a graph's path, or the settings of something else.
struct OnnxSide {
  std::string graph;  // path; empty: `other`
  std::string node;   // of the graph's operator; empty: all of them
  v1::ComparedSettings other;
};

// Compares the rotary embeddings of a graph with those of a model, of settings or of another graph, prints where they
// differ, and sets the exit code. `seq_len`: lengths for frequencies that depend on it; empty: one for each branch.
absl::Status CompareOnnx(const OnnxSide& a, const OnnxSide& b, const std::vector<int64_t>& seq_len, Session& session);

// "com.microsoft RotaryEmbedding (4 nodes)"
std::string NameOfOnnx(const OnnxRotary& rotary);

// Reads the file; a usage error if it has no operator that rotates.
absl::StatusOr<OnnxFile> ReadRotaryOnnx(const std::string& path);

// Returns the operators of the file that `node` chooses, or all. Those that differ in their heads only are one.
absl::StatusOr<std::vector<OnnxRotary>> ChooseOnnx(const OnnxFile& file, const std::string& path,
                                                   const std::string& node);

// Diagnoses the table, whose row p is for position p; against `expected` if it is not null.
absl::StatusOr<v1::DiagnoseResponse> DiagnoseOnnx(const v1::RotarySettings& table, const v1::RotarySource* expected,
                                                  int64_t seq_len, Session& session);

}  // namespace posenc::command
