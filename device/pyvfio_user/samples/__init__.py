"""Sample devices that show how pyvfio_user is used."""
