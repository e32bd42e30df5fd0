# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=<repository> -DOUTPUT=<file.h> -P write_commit.cmake
#
# Writes which commit is built, "+" where files differ from it; nothing where git does not tell, as in
# an archive of the sources. The file is touched only if that has changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=10 --match= --dirty=+
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define WIDEEP_COMMIT \"@commit@\"\n" @ONLY)
