# SPDX-License-Identifier: Apache-2.0
# CPack calls this between installing the components into folders of their own and packing these:
# what distributions ask of a package and an installation need not have. $SOURCE_DATE_EPOCH is the
# time of all files, so that a package can be built again.
set(time $ENV{SOURCE_DATE_EPOCH})
if(NOT time MATCHES "^[0-9]+$")
  message(FATAL_ERROR "SOURCE_DATE_EPOCH='${time}': expected seconds since 1970, which "
                      "scripts/packages.sh sets")
endif()

# What Debian wants of each package; of the folder of a component.
function(add_debian_files folder)
  get_filename_component(component ${folder} NAME)
  string(TOUPPER ${component} component)
  set(package ${CPACK_DEBIAN_${component}_PACKAGE_NAME})
  if(NOT package)
    message(FATAL_ERROR "${folder}: a component without a Debian package (cmake/Packages.cmake)")
  endif()
  set(docs ${folder}/usr/share/doc/${package})
  # Debian has the text of the licence once; copyright names it.
  file(REMOVE ${folder}/usr/share/doc/wideep/LICENSE)
  file(MAKE_DIRECTORY ${docs})
  configure_file(${CPACK_WIDEEP_SOURCE}/packaging/debian/copyright ${docs}/copyright COPYONLY)
  execute_process(COMMAND date --utc --rfc-email --date=@${time}
                  OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${docs}/changelog
       "wideep (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
       "  * Release ${CPACK_PACKAGE_VERSION}; CHANGELOG.md of the sources says what is new.\n\n"
       " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  execute_process(COMMAND gzip -9nf ${docs}/changelog COMMAND_ERROR_IS_FATAL ANY)
  if(CPACK_PACKAGE_CONTACT MATCHES "@localhost>$")
    set(overrides ${folder}/usr/share/lintian/overrides)
    file(MAKE_DIRECTORY ${overrides})
    file(WRITE ${overrides}/${package}
         "# Built by a user for themselves: WIDEEP_MAINTAINER names who publishes packages.\n"
         "${package}: bogus-mail-host Maintainer *\n"
         "${package}: bogus-mail-host-in-debian-changelog *\n")
  endif()
endfunction()

# Beside the command: what is in it of others (packaging/third_party.py).
function(add_third_party folder)
  file(GLOB_RECURSE programs ${folder}/wideep ${folder}/libwideep_mpi.so)
  list(FILTER programs INCLUDE REGEX "/bin/wideep$|\\.so$")
  set(commands ${programs})
  list(FILTER commands INCLUDE REGEX "/bin/wideep$")
  foreach(command IN LISTS commands)
    get_filename_component(prefix ${command}/../.. ABSOLUTE)
    list(TRANSFORM programs PREPEND "--program=" OUTPUT_VARIABLE arguments)
    execute_process(COMMAND ${CPACK_WIDEEP_SOURCE}/packaging/third_party.py
                            --output ${prefix}/share/doc/wideep ${arguments}
                    COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()

# Archives (.tar.zst) have all components in one folder, packages a folder for each.
file(GLOB folders ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(folder IN LISTS folders)
  if(NOT IS_DIRECTORY ${folder})
    continue()
  endif()
  file(GLOB_RECURSE pages ${folder}/*.1)
  list(FILTER pages INCLUDE REGEX "/man1/")
  if(pages)
    execute_process(COMMAND gzip -9nf ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(GLOB_RECURSE archives ${folder}/*.a)
  foreach(archive IN LISTS archives)
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives
                            --remove-section=.comment ${archive} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  add_third_party(${folder})
  if(CPACK_GENERATOR STREQUAL "DEB")
    add_debian_files(${folder})
  endif()
  # Whatever the umask of who packs.
  execute_process(COMMAND chmod --recursive u=rwX,go=rX ${folder} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND find ${folder} -exec touch --no-dereference --date=@${time} {} +
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
