/*
 * libvfio-user is given its connections instead of listening at a path for them: compile the
 * library with `gcc -include adopt.h`.
 *
 * The binding puts one end of a socket pair in place of the library's socket (dup2) before each
 * vfu_attach_ctx, which then takes a duplicate of it. So nothing of the process ever connects, and
 * a sandbox can forbid it.
 */
#include <fcntl.h>
#include <sys/socket.h>

/* The binding looks for this name, to tell such a library from others. */
__attribute__((visibility("default"), weak)) void pvu_adopts(void);
void pvu_adopts(void) {}

#define bind(socket, address, length) 0
#define listen(socket, backlog) 0
#define accept(socket, address, length) fcntl(socket, F_DUPFD_CLOEXEC, 0)
