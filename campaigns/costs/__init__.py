"""What sending costs: accounts of what was accepted, and estimates of what is to be sent."""
