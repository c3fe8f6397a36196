#include "posenc/diagnose/parts.h"

#include <algorithm>

#include "posenc/base/interruption.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kRun = 16;  // rows in a run that no explanation fits by chance

// Adds the tokens of an operand that have a row in the set.
void AddTokens(const Evidence& evidence, size_t operand, const RowSet& rows, std::vector<uint8_t>* tokens) {
  const int64_t heads = evidence.operands[operand].heads;
  for (size_t n = 0; n < rows[operand].size(); ++n) (*tokens)[n / heads] |= rows[operand][n];
}
Box BoxOf(const Evidence& evidence, const std::vector<size_t>& operands, const RowSet& rows) {
  Box box{.operands = operands};
  std::vector<uint8_t> tokens(evidence.tokens.count());
  for (const size_t operand : operands) {
    AddTokens(evidence, operand, rows, &tokens);
    box.heads.push_back(HeadsIn(evidence, operand, rows));
  }
  for (size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n]) box.tokens.push_back(static_cast<int64_t>(n));
  }
  return box;
}

}  // namespace

std::vector<int64_t> HeadsIn(const Evidence& evidence, size_t operand, const RowSet& rows) {
  const int64_t heads = evidence.operands[operand].heads;
  std::vector<uint8_t> in_set(heads);
  for (size_t n = 0; n < rows[operand].size(); ++n) in_set[n % heads] |= rows[operand][n];
  std::vector<int64_t> list;
  for (int64_t h = 0; h < heads; ++h) {
    if (in_set[h]) list.push_back(h);
  }
  return list;
}

RowSet NoRows(const Evidence& evidence) {
  RowSet rows;
  for (const Rows& operand : evidence.operands) rows.emplace_back(operand.tokens() * operand.heads);
  return rows;
}

int64_t CountOf(const RowSet& rows) {
  int64_t count = 0;
  for (const std::vector<uint8_t>& operand : rows) {
    count += static_cast<int64_t>(operand.size()) - std::count(operand.begin(), operand.end(), 0);
  }
  return count;
}

bool IsEmpty(const RowSet& rows) { return CountOf(rows) == 0; }

RowSet Complement(const RowSet& rows) {
  RowSet result = rows;
  for (std::vector<uint8_t>& operand : result) {
    for (uint8_t& row : operand) row = row == 0;
  }
  return result;
}

RowSet Both(const RowSet& a, const RowSet& b) { return Without(a, Complement(b)); }

RowSet Without(const RowSet& a, const RowSet& b) {
  RowSet result = a;
  for (size_t n = 0; n < a.size(); ++n) {
    for (size_t row = 0; row < a[n].size(); ++row) result[n][row] = a[n][row] && !b[n][row];
  }
  return result;
}

void AddRows(const RowSet& more, RowSet* rows) {
  if (rows->empty()) rows->resize(more.size());
  for (size_t n = 0; n < more.size(); ++n) {
    (*rows)[n].resize(more[n].size());
    for (size_t row = 0; row < more[n].size(); ++row) (*rows)[n][row] |= more[n][row];
  }
}

BatchRows::BatchRows(const Evidence& evidence, const Rows& rows) : tokens_(evidence.tokens), length_(rows.length) {
  packed_ = rows.sequences == 1 && tokens_.bounds.size() > 2;
  count_ = packed_ ? static_cast<int64_t>(tokens_.bounds.size()) - 1 : rows.sequences;
  for (int64_t row = 0; row < count_; ++row) {
    longest_ = std::max(longest_, End(row) - Begin(row));
    if (End(row) > Begin(row)) filled_.push_back(row);
  }
}

RowSet ExplainedRows(const Evidence& evidence, const RowSet& rest, const RowSet& misfits, bool whole_heads) {
  RowSet explained;
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    const int64_t heads = evidence.operands[n].heads;
    std::vector<uint8_t>& rows = explained.emplace_back(rest[n].size());
    const BatchRows batch(evidence, evidence.operands[n]);
    for (const int64_t b : batch.filled()) {
      InterruptionPoint();
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<int64_t> run;
        bool all = true;
        const auto take = [&] {
          for (const int64_t row : run) rows[row] = 1;
        };
        for (int64_t t = batch.Begin(b); t < batch.End(b); ++t) {
          const int64_t row = t * heads + h;
          if (!rest[n][row]) continue;
          if (!misfits[n][row]) {
            run.push_back(row);
            continue;
          }
          all = false;
          if (!whole_heads && static_cast<int64_t>(run.size()) >= kRun) take();
          run.clear();
        }
        if (all || (!whole_heads && static_cast<int64_t>(run.size()) >= kRun)) take();
      }
    }
  }
  return explained;
}

std::vector<Box> BoxesOf(const Evidence& evidence, const RowSet& rest) {
  std::vector<Box> boxes;
  std::vector<size_t> operands;
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    if (!IsEmpty({rest[n]})) operands.push_back(n);
  }
  if (operands.size() > 1) boxes.push_back(BoxOf(evidence, operands, rest));
  for (const size_t operand : operands) boxes.push_back(BoxOf(evidence, {operand}, rest));
  return boxes;
}

}  // namespace posenc::diagnose
