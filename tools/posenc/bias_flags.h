// Flags of attention bias methods: ALiBi's have plain names, other methods' are named --METHOD-FIELD.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "posenc/v1/bias.pb.h"
#include "tools/posenc/request_flags.h"
#include "tools/posenc/session.h"

namespace posenc::command {

// Not movable while flags are parsed: parsing writes into the object.
class BiasMethodFlags {
 public:
  void Add(CLI::App& app);
  // Adds --table and --table-layout, which can also be combined with --model.
  void AddTable(CLI::App& app);
  bool has_table() const;
  // --position-mask belongs to the request and can be combined with --model, too.
  bool has_position_mask() const { return padding_.has_position_mask(); }
  // Returns the first given flag of a method, or "" if none was given.
  std::string First() const;
  // Returns a BiasMethod without a method if only --table or --position-mask was given. Returns a usage error if flags
  // of several methods were given.
  absl::StatusOr<v1::BiasMethod> Get() const;
  // True if the method takes a config.json in addition to its weights.
  bool TakesModel() const { return others_.has_swin_v2(); }

 private:
  v1::Alibi alibi_;
  v1::BiasMethod others_;
  bool nope_ = false;
  v1::BiasMethod table_, padding_;
};

// Flags of a bias: --model, or a method and its settings, each with an optional table. Swin v2 takes both.
class BiasFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  // Adds the method to what is missing, if no flag gives one.
  void AddMissing(Missing* missing) const;
  // Call it if no bias is used: returns a usage error if a flag that needs --model was given.
  absl::Status CheckUnused() const { return model_.CheckUnused(); }
  absl::StatusOr<v1::BiasMethod> Get(Session* session) const;

 private:
  ModelFlags model_;
  BiasMethodFlags method_;
};

}  // namespace posenc::command
