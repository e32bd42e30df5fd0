# SPDX-License-Identifier: Apache-2.0
# The compiled modules of the Python package, for those who build them: python/CMakeLists.txt for one
# Python, packaging/wheel for all of them.
set(wideep_python_modules balancer communicator expert_maps online_repairer tensor_communicator)

# wideep_link_python_module(<target> <module>): with what it needs of wideep.
function(wideep_link_python_module target module)
  target_link_libraries(${target} PRIVATE wideep::balancer)
  if(module STREQUAL "communicator")
    target_link_libraries(${target} PRIVATE wideep::communicator)
  elseif(module STREQUAL "tensor_communicator")
    target_link_libraries(${target} PRIVATE wideep::device wideep::communicator)
    # On a CPU slots are chosen by the engine's own code, which is in no header that is installed.
    wideep_use_houses(${target} foundation numbers exchange)
  endif()
endfunction()
