// SPDX-License-Identifier: Apache-2.0
#include "ep/dispatch_call.h"

#include "transport/endpoint.h"

namespace wideep::ep {

GroupBuffers::GroupBuffers(const transport::Endpoint& endpoint, const BufferLayout& buffer_layout)
    : layout(buffer_layout),
      rank(endpoint.rank()),
      num_ranks(endpoint.num_ranks()),
      num_owners(layout.shape().num_owners()),
      owner(rank % num_owners) {
  for (int each = 0; each < num_ranks; ++each) {
    segments.push_back(endpoint.segment(each));
    is_on_this_node.push_back(endpoint.is_on_this_node(each));
  }
}

}  // namespace wideep::ep
