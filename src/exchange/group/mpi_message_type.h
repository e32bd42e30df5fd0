// SPDX-License-Identifier: Apache-2.0
//
// The MPI datatype and count of a message of any length. MPI counts elements in an int. So a
// message longer than a block is sent as one element of a struct type: whole blocks, then the
// remaining bytes. The receiver sees bytes in both cases.
//
// Thread safety: that of MPI calls. Include it only where MPI is available.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>

namespace wideep::transport {

class MpiMessageType {
 public:
  static constexpr size_t kBlock = size_t{1} << 30;

  // For a message of `bytes` bytes. block: at most 2³¹ − 1; a message may have up to block² bytes.
  explicit MpiMessageType(size_t bytes, size_t block = kBlock) : count_(static_cast<int>(bytes)) {
    if (bytes <= block) return;
    MPI_Datatype one_block = MPI_DATATYPE_NULL, blocks = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(block), MPI_BYTE, &one_block);
    MPI_Type_contiguous(static_cast<int>(bytes / block), one_block, &blocks);
    const std::array<int, 2> counts{1, static_cast<int>(bytes % block)};
    const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(bytes / block * block)};
    const std::array<MPI_Datatype, 2> parts{blocks, MPI_BYTE};
    MPI_Type_create_struct(2, counts.data(), places.data(), parts.data(), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&blocks);
    MPI_Type_free(&one_block);
    count_ = 1;
  }
  // May be called while transfers run: MPI frees the type when the last one has completed.
  ~MpiMessageType() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  MpiMessageType(const MpiMessageType&) = delete;
  MpiMessageType& operator=(const MpiMessageType&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

  // The length in bytes of a probed message.
  static size_t length(const MPI_Status& status) {
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    return static_cast<size_t>(bytes);
  }

 private:
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace wideep::transport
