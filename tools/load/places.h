// Places in shared memory for the answers of calls in flight, and which of them can be trusted.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace posenc::load {

class Places {
 public:
  // One of them, until it is destroyed.
  class Place {
   public:
    Place(Place&& other) noexcept : places_(std::exchange(other.places_, nullptr)), index_(other.index_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(places_, other.places_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Place() {
      if (places_ != nullptr) places_->Give(index_);
    }

    size_t index() const { return index_; }
    // Whether what is there can only be its call's answer.
    bool verifiable() const { return places_->states_[index_].verified; }
    // A call was given up that the server may answer yet: nothing can be said of what is there from now on.
    void Spoil() { places_->states_[index_].spoilt = true; }

   private:
    friend class Places;
    Place(Places* places, size_t index) : places_(places), index_(index) {}

    Places* places_;
    size_t index_;
  };

  // At most `most_verified` are verifiable at a time.
  Places(size_t count, size_t most_verified);

  // Absent: all are taken. Verifiable, if that is wanted and can be. Thread-safe.
  std::optional<Place> Take(bool verifiable);

 private:
  struct State {
    bool spoilt = false, verified = false;
  };
  void Give(size_t index);

  const size_t most_verified_;
  std::vector<State> states_;  // each its taker's, while it is taken

  std::mutex mutex_;
  size_t verified_ = 0;
  std::vector<size_t> clean_, spoilt_;  // free ones
};

}  // namespace posenc::load
