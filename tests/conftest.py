"""What must happen before any test module can start jax."""

import jax

# The tests of meshes need more than one device.
jax.config.update("jax_num_cpu_devices", 4)
